"""The plan that a query starts with, before anything is known of its streams.

Rates are guessed, all alike, so that a tree is taken. Where streams live is declared, and so is what links between
sites take: where a query reads streams at sites, trees and routed joins are weighed by that.
"""

from __future__ import annotations

from midstream.algebra.plan import Relation, Stream
from midstream.job.job import Job
from midstream.job.outputs.expected_moves import topology_now
from midstream.optimizer.plans import Plan, plan_query


def first_plan(job: Job, relation: Relation, wanted: Plan | str | None = None, every: int | None = None) -> Plan:
    """The plan that is wanted, or the best by guessed rates, the sites of streams and the links between them."""
    topology = topology_now(job) if wanted is None and _at_sites(relation) else None
    if topology is None:
        return plan_query(relation, wanted, every)
    return plan_query(relation, None, every, constants=job.watchers.constants, spread=True, topology=topology)


def _at_sites(relation: Relation) -> bool:
    """Whether some of the streams that a query reads live at sites."""
    if isinstance(relation, Stream):
        return relation.site is not None
    return any(_at_sites(below) for below in relation.inputs)
