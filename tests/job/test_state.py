"""A job's state: whatever was asked for, in whatever order, the next manifest restores the state it was made from."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.job.chain import temporary_checkpoint
from tests.job.many import Many
from tests.job.test_chain import THREE, tables
from tests.profiles import examples

import midstream as ms
from midstream.api import ask
from midstream.errors import MidstreamError
from midstream.job.events import AdaptivityChanged, AddingRecorded, QueryDropped, Scheduled
from midstream.job.state import JobState, copied
from midstream.job.task.exchange import GROUPS

INPUTS = tables(rows=80, last=120)
PLANS = ("((A B) C)", "(A (B C))", "((A C) B)")
EVENTS = st.one_of(
    st.just(("batch",)),
    st.tuples(
        st.just("migrate"), st.sampled_from(PLANS), st.sampled_from(["genmig", "moving_state", "parallel_track"])
    ),
    st.just(("cancel",)),
    st.tuples(st.just("rebalance"), st.integers(1, 5)),
    st.tuples(st.just("rescale"), st.integers(1, 4)),
    st.tuples(st.just("schedule"), st.sampled_from(["dfs", "bfs", "rr", "chain"])),
    st.tuples(st.just("mode"), st.sampled_from(["off", "suggest"])),
    st.just(("add",)),
    st.just(("drop",)),
    st.just(("restart",)),
)


def known(state: JobState) -> dict[str, Any]:
    """What a state says, without what only this process has of it."""
    manifest = state.manifest
    assert manifest is not None
    return {
        "batch": manifest.batch_id,
        "slots": state.slots,
        "bits": state.group_bits,
        "wanted": state.wanted,
        "routes": state.routes,
        "settings": replace(state.settings, arrival={}),
        "added": state.added,
        "texts": state.texts,
        "modes": state.modes,
        "faults": (state.faults.stopped, state.faults.news),
        "plans": {
            name: (query.plan.text, query.migration and query.migration.progress)
            for name, query in state.queries.items()
        },
        "nothing to tell": (state.cancelled, state.retiring),
    }


def everything(state: JobState) -> tuple[object, ...]:
    """All that a state says: a transition must leave the state that it begins with as it was."""
    queries = {name: (query, query.migration, dict(query.local)) for name, query in state.queries.items()}
    faults = copied(state.faults)
    rest = (state.added, state.texts, state.modes, state.retiring, state.cancelled, state.routes)
    return state.manifest, queries, state.wanted, state.settings, faults, *(copy.copy(one) for one in rest)


def happen(job: Many, event: tuple[Any, ...], parts: list[Any]) -> None:
    """Something is asked for; what is refused changes nothing."""
    state = job.driver.state
    match event:
        case ("batch",):
            job.batch(parts.pop(0) if parts else {})
        case ("migrate", plan, strategy):
            job.migrate_query("q", plan, strategy)
        case ("cancel",):
            job.driver.cancel_migration("q")
        case ("rebalance", step):
            job.driver.rebalance([group * step % state.slots for group in range(GROUPS)])
        case ("rescale", slots):
            job.driver.rescale(slots)
        case ("schedule", name):
            job.driver.apply(Scheduled(name))
        case ("mode", mode):
            job.driver.apply(AdaptivityChanged("q", mode))
        case ("add",) if "more" not in state.queries:
            job.add("more", "SELECT k, v FROM A [RANGE 5]")
            job.driver.apply(AddingRecorded("more", {"cql": "SELECT k, v FROM A [RANGE 5]"}))
        case ("drop",) if "more" in state.queries:
            job.driver.apply(QueryDropped("more"))


@examples(8)
@given(st.lists(EVENTS, max_size=14))
def test_the_next_manifest_restores_the_state_that_it_was_made_from(events):
    question = ask(THREE, INPUTS)
    with temporary_checkpoint() as folder:
        options: dict[str, Any] = {"catalog": question.catalog, "folder": folder, "slots": 2}
        job = Many(**options)
        job.add("q", THREE, wanted=PLANS[0])
        parts = job.cut(question.tables, 30)
        for event in [*events, ("batch",)]:
            if event == ("restart",) and job.driver.manifest is not None:
                job = Many(**options)
                continue
            before, meant = job.driver.state, everything(job.driver.state)
            try:
                happen(job, event, parts)
            except MidstreamError:
                assert job.driver.state is before
                continue
            finally:
                assert everything(before) == meant
            if event == ("batch",):
                assert known(Many(**options).driver.state) == known(job.driver.state)
        for part in parts:
            job.batch(part)
        job.batch({}, end=True)
        assert ms.snapshot_equal(job.table("q"), ms.reference(THREE, INPUTS))
