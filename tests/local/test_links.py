"""Links between sites: queries follow them, say why, and are right whatever they do."""

from __future__ import annotations

import re
from random import Random

import pyarrow as pa
import pytest
from tests.distribution.routed.joins import draw_join
from tests.profiles import always
from typer.testing import CliRunner

import midstream as ms
from midstream.adaptation.policy import Policy
from midstream.checkpoint.commands import command_in
from midstream.checkpoint.status import job_at, status_record
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.interface.answers import links_text
from midstream.interface.asking import asked
from midstream.interface.cli.app import app
from midstream.job.commands.adding import first_plan

SITES = {"eu": [0, 1], "us": [2]}
SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("v", pa.int64())])
CHAIN = "SELECT A.v AS a, C.v AS c FROM A [RANGE 50], B [RANGE 50], C [RANGE 50] WHERE A.k = B.k AND B.v = C.v"
FAST, SLOW = "1 ms, 100 MB/s", "1 s, 10 KB/s"
EAGER = Policy("auto", least_gain=0.01, margin=0.0, evidence=0.0, patience=1, warm_up=1)


def session_on(folder, links=None, **options) -> CheckpointSession:
    told = {"checkpoint": str(folder), "on": "local", "slots": 3, "sites": SITES, **options}
    return CheckpointSession(None, links=links or {"eu <-> us": FAST}, **told)


def opened(folder, adaptive="auto", links=None, plan=None):
    session = session_on(folder, links)
    for name, site in {"A": "eu", "B": "us", "C": "eu"}.items():
        session.stream(name, SCHEMA, site=site)
    return session, session.query("q", CHAIN, adaptive=adaptive, plan=plan)


def rows(number: int) -> dict[str, list[dict[str, int]]]:
    """The rows of a batch of 30 ticks: few of B, which lives at us."""
    random = Random(number)
    count = {"A": 120, "B": 40, "C": 120}
    return {
        name: [
            {"ts": 30 * number + 30 * i // count[name], "k": random.randrange(40), "v": random.randrange(40)}
            for i in range(count[name])
        ]
        for name in "ABC"
    }


def test_a_query_follows_a_link_that_became_slow(tmp_path):
    """Rows of A and C went to us; once that takes long those of B come to eu."""
    session, query = opened(tmp_path)
    with session:
        session.start()
        for number in range(8):
            session.push(rows(number))
        before = query.plan.text
        assert session.links({"eu -> us": SLOW}) == {"eu -> us": "1 s, 10 kB/s", "us -> eu": "1 ms, 100 MB/s"}
        for number in range(8, 12):
            session.push(rows(number))
        after, decision = query.plan.text, query.decisions[-1]
        sent = session._job.commits.progress["queries"]["q"]["sent"]
    assert "-> B" in before and "-> B" not in after and "<- B" in after
    assert decision.action == "migrate"
    assert decision.reason.startswith("The link from eu to us went from 1 ms, 100 MB/s to 1 s, 10 kB/s. ")
    assert query.history[-1].trigger == decision.reason
    assert not {pair for pair in sent if pair.endswith("to 2")}, "nothing goes over the slow link any more"


def test_nothing_is_weighed_anew_while_links_stay_what_they_are(tmp_path):
    session, query = opened(tmp_path)
    with session:
        session.start()
        for number in range(8):
            session.push(rows(number))
        decided = len(query.decisions)
        session.links({"eu -> us": FAST})
        session.push(rows(8))
        assert len(query.decisions) == decided


def test_a_restart_keeps_links_that_were_changed_and_weighs_those_that_are_declared_anew(tmp_path):
    session, query = opened(tmp_path, "suggest")
    with session:
        session.start()
        for number in range(6):
            session.push(rows(number))
        session.links({"eu -> us": SLOW})
        session.push(rows(6))
        assert "went from" in query.decisions[-1].reason
    session, query = opened(tmp_path, "suggest", {"eu <-> us": "10 ms, 50 MB/s"})
    with session:
        assert session.links() == {"eu -> us": "1 s, 10 kB/s", "us -> eu": "10 ms, 50 MB/s"}
        session.start()
        session.push(rows(7))
        reason = query.decisions[-1].reason
    assert reason.startswith("The link from us to eu went from 1 ms, 100 MB/s to 10 ms, 50 MB/s. ")


def test_a_plan_whose_rows_take_longer_on_links_than_predicted_is_left_again(tmp_path, monkeypatch):
    session, query = opened(tmp_path, Policy("auto", watch=0.5))
    with session:
        session.start()
        for number in range(6):
            session.push(rows(number))
        session.links({"eu -> us": SLOW})
        for number in range(6, 10):
            session.push(rows(number))
        new = query.plan.text
        # Every batch takes ten minutes on links, whatever they are said to be.
        monkeypatch.setattr("midstream.job.adaptivity.link_seconds", lambda reports, query, topology: 600.0)
        for number in range(10, 16):
            session.push(rows(number))
        back = [decision for decision in query.decisions if decision.action == "rollback"]
    assert back and back[0].plan == new and "times as long on links as predicted" in back[0].reason


def test_the_first_plan_respects_sites_and_links_before_anything_is_known(tmp_path):
    """A and C live at eu: over a slow link to us they do not travel, in a query that never adapts too."""
    plans, sent = {}, {}
    for name, link in {"fast": "1 us, 1 GB/s", "slow": SLOW}.items():
        session, query = opened(tmp_path / name, "off", {"eu -> us": link})
        with session:
            plans[name] = query.plan.text
            assert first_plan(session._job, query.plan.query).text == query.plan.text
            session.start()
            session.push(rows(0))
            sent[name] = session._job.commits.progress["queries"]["q"]["sent"]
    assert plans["slow"] != plans["fast"]
    assert any(pair.endswith("to 2") for pair in sent["fast"])
    assert not any(pair.endswith("to 2") for pair in sent["slow"]), plans


def test_a_stopped_job_tells_its_links(tmp_path):
    """Those that are declared, and those that were changed while it ran."""
    session, _ = opened(tmp_path, "off")
    with session:
        session.start()
        session.push(rows(0))
        session.links({"eu -> us": SLOW})
        session.push(rows(1))
        running = session.links()
    told = {"eu -> us": "1 s, 10 kB/s", "us -> eu": "1 ms, 100 MB/s"}
    assert status_record(job_at(str(tmp_path)))["links"] == running == told
    shown = CliRunner().invoke(app, ["links", str(tmp_path)])
    assert shown.exit_code == 0 and "link eu -> us: 1 s, 10 kB/s" in shown.output, shown.output
    assert "link us -> eu: 1 ms, 100 MB/s" in CliRunner().invoke(app, ["status", str(tmp_path)]).output


@pytest.mark.parametrize("seed", always(2, range(60)))
def test_queries_that_follow_links_agree_with_the_oracle(seed, tmp_path):
    """Random graphs, homes, links and changes, across a restart, with a policy that migrates at any gain."""
    random = Random(seed)
    joined = draw_join(random, 3 + seed % 2, 14)
    homes = {name: random.choice(["eu", "us", None]) for name in joined.tables}
    told = []
    for part in range(2):
        with session_on(tmp_path, {"eu <-> us": _drawn(random)}) as session:
            for name, table in joined.tables.items():
                session.stream(name, table.schema, site=homes[name])
            query = session.query("q", joined.text, adaptive=EAGER)
            session.start()
            for number in range(8):
                if random.random() < 0.5:
                    told.append({random.choice(["eu -> us", "us -> eu", "eu <-> us"]): _drawn(random)})
                    session.links(told[-1])
                session.push({name: _span(table, 8 * part + number) for name, table in joined.tables.items()})
            if part == 1:
                session.finish()
                found, plans = query.table(), [change.new_plan for change in query.history]
    same = ms.snapshot_equal(found, ms.reference(joined.text, joined.tables))
    assert same, f"{same}\n{joined.text}\n{homes}\n{told}\n{plans}"


def _drawn(random: Random) -> str:
    return f"{random.choice([0, 1, 100, 5000])} ms, {random.choice([1, 100, 100_000])} KB/s"


def _span(table: pa.Table, number: int) -> pa.Table:
    """The rows of one sixteenth of all time."""
    times = table.column("ts").to_numpy()
    return table.filter(pa.array((times * 16 // (times.max() + 1)).clip(0, 15) == number))


PLANS = ("A -> B <- C, B -> A -> C, C <- B -> A", "A -> B -> C, B -> A -> C, C -> B -> A", "((A B) C)", "(A (B C))")


@pytest.mark.parametrize("plan", PLANS)
def test_the_bytes_that_are_expected_between_sites_are_those_that_are_counted(plan, tmp_path):
    session, query = opened(tmp_path, "suggest", plan=plan)
    with session:
        session.start()
        for number in range(6):
            session.push(rows(number))
        lines = [line for line in query.explain().split("\n") if line.startswith("Bytes from")]
    assert {"eu to us", "us to eu"} <= {line.removeprefix("Bytes from ").split(" in the")[0] for line in lines}
    for line in lines:
        counted, expected = (float(word.replace(",", "")) for word in line.split(": ")[1].split(" were")[0].split(", "))
        assert counted == pytest.approx(expected, rel=0.35), line


def test_links_need_sites_and_a_checkpoint(tmp_path):
    with pytest.raises(ms.MidstreamError, match="names the site 'asia'"):
        session_on(tmp_path, {"eu -> asia": FAST})
    with pytest.raises(ms.MidstreamError, match="which is not declared"):
        session_on(tmp_path, sites=None)
    with pytest.raises(ms.MidstreamError, match="no links"):
        ms.Session(links={"eu -> us": FAST})
    with pytest.raises(ms.MidstreamError, match="no sites"):
        ms.Session().links()
    with session_on(tmp_path) as session, pytest.raises(ms.MidstreamError, match="above zero"):
        session.links({"eu -> us": "1 ms, 0 MB/s"})


def test_a_running_job_is_told_of_links_through_its_checkpoint(tmp_path):
    session, query = opened(tmp_path)
    with session:
        session.start()
        for number in range(6):
            session.push(rows(number))
        told = asked(str(tmp_path), command_in({"command": "links", "links": {"eu -> us": SLOW}}), 30, dry_run=True)
        assert told["changes"] == ["the link from eu to us went from 1 ms, 100 MB/s to 1 s, 10 kB/s"]
        assert told["queries"]["q"]["plan"] == query.plan.text and "<- B" in told["queries"]["q"]["best"]
        assert session.links()["eu -> us"] == "1 ms, 100 MB/s", "a forecast changes nothing"
        answer = asked(str(tmp_path), command_in({"command": "links", "links": {"eu -> us": SLOW}}), 30)
        assert answer == {"links": {"eu -> us": "1 s, 10 kB/s", "us -> eu": "1 ms, 100 MB/s"}}
        session.push(rows(6))
        explained = query.explain()
        status = asked(str(tmp_path), command_in({"command": "status"}), 30)
        with pytest.raises(ms.QueryError, match="above zero") as wrong:
            asked(str(tmp_path), command_in({"command": "links", "links": {"eu -> us": "1 ms, 0 MB/s"}}), 30)
    assert status["links"] == answer["links"]
    assert re.search("Bytes from eu to us.* were expected", explained)
    assert status["queries"]["q"]["adaptivity"]["decisions"][-1]["reason"].startswith("The link from eu to us went")
    assert "^" in str(wrong.value)


def test_forecasts_of_links_in_words():
    costs = {"cost": 900.0, "best_cost": 80.0}
    shown = links_text(
        {
            "links": {"eu -> us": "1 s, 10 kB/s"},
            "queries": {
                "q": {"plan": "(A B)", "best": "A -> B, B <- A", **costs},
                "r": {"plan": "(A B)", "best": "(A B)", **costs},
            },
        }
    )
    assert "link eu -> us: 1 s, 10 kB/s" in shown
    assert "query q: A -> B, B <- A would be better than (A B) (900 against 80 per tick)" in shown
    assert "query r: (A B) would still be the best plan" in shown
    assert links_text({"links": {}}) == "there are no links between sites"
