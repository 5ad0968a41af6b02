"""The rules: one file, one function each, pure; a rule returns its argument when it has nothing to do.

`NORMALIZING` rules never make a plan worse and are applied until nothing changes. `EQUIVALENCES` pay only for some
streams. The optimizer does not apply them step by step: its searches cover what they lead to. Join orders are those of
`ordering`, over graphs whose equalities are closed (`commute_join`, `associate_join`, `close_equalities`); `variants`
weighs duplicates and groups before and after joins; lowering keeps only the columns that are read. A test holds that no
equivalence makes a cheaper plan than the one that was chosen.

All are legal because each operator means, at every instant, its relational twin.
"""

from collections.abc import Callable

from midstream.algebra.plan import Relation
from midstream.optimizer.rules.associate_join import associate_join
from midstream.optimizer.rules.close_equalities import close_equalities
from midstream.optimizer.rules.commute_join import commute_join
from midstream.optimizer.rules.eliminate_distinct import eliminate_distinct
from midstream.optimizer.rules.fold_constants import fold_constants
from midstream.optimizer.rules.fold_windows import fold_windows
from midstream.optimizer.rules.pull_aggregation_above_join import pull_aggregation_above_join
from midstream.optimizer.rules.pull_distinct_above_join import pull_distinct_above_join
from midstream.optimizer.rules.push_aggregation_below_join import push_aggregation_below_join
from midstream.optimizer.rules.push_distinct_below_join import push_distinct_below_join
from midstream.optimizer.rules.push_projection_down import push_projection_down
from midstream.optimizer.rules.push_selection_down import push_selection_down
from midstream.optimizer.rules.push_selection_through_difference import push_selection_through_difference
from midstream.optimizer.rules.push_selection_through_union import push_selection_through_union

Rule = Callable[[Relation], Relation]

NORMALIZING: tuple[Rule, ...] = (
    fold_constants,
    fold_windows,
    push_selection_down,
    push_selection_through_union,
    push_selection_through_difference,
    eliminate_distinct,
)

EQUIVALENCES: tuple[Rule, ...] = (
    push_projection_down,
    push_distinct_below_join,
    pull_distinct_above_join,
    push_aggregation_below_join,
    pull_aggregation_above_join,
    commute_join,
    associate_join,
    close_equalities,
)

RULES: tuple[Rule, ...] = NORMALIZING + EQUIVALENCES

__all__ = ["EQUIVALENCES", "NORMALIZING", "RULES", "Rule"]
