"""Other systems' cases in slots and stages, batch by batch on a checkpoint: the path of Spark without its processes."""

from __future__ import annotations

import pytest
from tests.conformance.cases import available, load
from tests.conformance.test_conformance import ASKED, inputs_of
from tests.job.chain import Chain

from midstream.api import ask

pytestmark = pytest.mark.skipif(not available(), reason="the cases are kept beside the repository, and are not here")


@pytest.mark.parametrize(("family", "name"), list(ASKED), ids=["/".join(key) for key in ASKED])
def test_slots_and_stages_give_what_is_expected(family: str, name: str, tmp_path) -> None:
    case, asked = load(family, name), ASKED[family, name]
    # What is late depends on batches here: rows that the source drops are left out beforehand.
    inputs = inputs_of(case, asked, drop_late=True)
    question = ask(asked.cql, inputs)
    chain = Chain(question.plan, question.catalog, tmp_path, slots=3, seed=len(name))
    result = chain.run(question.tables, batch_rows=-(-sum(table.num_rows for table in inputs.values()) // 6))
    assert not (difference := asked.compare.difference(result, case.expected)), difference
