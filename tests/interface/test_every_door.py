"""Every command comes through every door: a program, the command line, a file in the control folder, the dashboard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

import midstream as ms
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.commands import (
    COMMANDS,
    Adapt,
    AddQuery,
    CancelMigration,
    CancelRebalance,
    ChangeLinks,
    Command,
    CorrectCosts,
    DropQuery,
    ForecastOf,
    Migrate,
    OfferPlans,
    Rebalance,
    ReplaceQuery,
    Rescale,
    ResumeQuery,
    ScheduleOperators,
    ShowPlan,
    ShowStatus,
    StopJob,
    SwitchQuery,
    command_in,
)
from midstream.checkpoint.control import ask
from midstream.checkpoint.manifest import Manifest
from midstream.cluster.checkpoint_session import CheckpointSession
from midstream.cluster.listener import Listener
from midstream.interface.answers import answer_text, forecast_text
from midstream.interface.cli import app
from midstream.interface.cli.app import COMMANDS as TYPED
from midstream.interface.dashboard.access import CSRF, Access
from midstream.interface.dashboard.server import Dashboard
from midstream.job.events import CostsCorrected

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string()), ("ts", pa.int64())])
JOIN = "SELECT A.v AS a, C.v AS c FROM A [RANGE 50], B [RANGE 50], C [RANGE 50] WHERE A.k = B.k AND B.k = C.k"
LESS = JOIN.replace("RANGE 50", "RANGE 40")
CAST = "SELECT CAST(v AS BIGINT) AS n FROM A [RANGE 5]"
OLD, NEW = "((A B) C)", "(A (B C))"

ASKED: dict[str, Command] = {
    "status": ShowStatus(),
    "plan": ShowPlan("q"),
    "plans": OfferPlans("q"),
    "migrate": Migrate("q", NEW, "moving_state", "whole", (1,)),
    "cancel": CancelMigration("q"),
    "schedule": ScheduleOperators("bfs"),
    "adapt": Adapt("q", "suggest"),
    "add": AddQuery("more", JOIN, NEW, "suggest"),
    "replace": ReplaceQuery("q", JOIN.replace("50", "30"), None, "withhold"),
    "switch": SwitchQuery("q"),
    "drop": DropQuery("q"),
    "resume": ResumeQuery("cast"),
    "rebalance": Rebalance("mslb", None, (1, 0) * 128),
    "cancel_rebalance": CancelRebalance(),
    "rescale": Rescale(3),
    "links": ChangeLinks({"eu -> us": "1 s, 10 kB/s"}),
    "costs": CorrectCosts({"probe": 1.25, "second": 0.5}),
    "stop": StopJob(),
    "forecast": ForecastOf(Rescale(3)),
}


OWN = (ChangeLinks, CancelMigration, CancelRebalance, ResumeQuery, SwitchQuery)
"""The commands for which a job is made ready."""


@pytest.fixture(autouse=True)
def waits_are_short(monkeypatch):
    monkeypatch.setattr(Listener.__init__, "__defaults__", (0.02,))
    monkeypatch.setitem(ask.__kwdefaults__, "pause", 0.02)


def rows(first: int) -> dict[str, list[dict[str, Any]]]:
    return {name: [{"k": i % 40, "v": str(i), "ts": first + i % 9} for i in range(40)] for name in "ABC"}


def made_for(command: Command, folder: Path) -> CheckpointSession:
    """A session at work of which the command can be asked."""
    sites: dict[str, Any] = {"sites": {"eu": [0], "us": [1]}, "links": {"eu <-> us": "1 ms, 100 MB/s"}}
    options = sites if isinstance(command, ChangeLinks) else {}
    session = CheckpointSession(None, checkpoint=str(folder), on="local", slots=2, **options)
    for number, name in enumerate("ABC"):
        session.stream(name, SCHEMA, site=("eu", "us")[number % 2] if options else None)
    session.query("q", JOIN, plan=OLD)
    session.query("cast", CAST)
    session.start()
    session.push(rows(0))
    match command:
        case CancelMigration():
            session.queries["q"].migrate(NEW, "genmig")
        case SwitchQuery():
            session.replace("q", LESS, verify=1000, where="a > '5'", then="wait")
        case CancelRebalance():
            session.rebalance((1, 0) * 128, protocol="split_time")
        case ResumeQuery():
            session.push("A", [{"k": 1, "v": "no number", "ts": 10}])
    session.push(rows(10))
    return session


def by_program(session: CheckpointSession, command: Command) -> None:
    match command:
        case ShowPlan(name):
            session.queries_by(name).explain()
        case Migrate(name, plan, strategy, part, slots, verify):
            session.queries[name].migrate(plan, strategy, part=part, slots=slots, verify=verify)
        case CancelMigration(name):
            session.queries[name].cancel_migration()
        case ScheduleOperators(name):
            session.scheduling = name
        case Adapt(name, mode):
            session.adapt(name, mode)
        case AddQuery(name, cql, plan, adaptive):
            session.query(name, cql, plan=plan, adaptive=adaptive)
        case ReplaceQuery(name, cql, plan):
            session.replace(name, cql, plan=plan, incomplete="withhold")
        case SwitchQuery(name):
            session.queries[name].switch()
        case DropQuery(name):
            session.drop(name)
        case ResumeQuery(name):
            session.resume(name)
        case Rebalance(protocol, by, routing):
            session.rebalance(routing, protocol=protocol, by=by)
        case CancelRebalance():
            session.cancel_rebalance()
        case Rescale(slots):
            session.rescale(slots)
        case ChangeLinks(links):
            session.links(links)
        case CorrectCosts(factors):
            session._job.apply(CostsCorrected(factors))
        case StopJob():
            session.request_stop()
        case ShowStatus() | OfferPlans() | ForecastOf():
            pass  # what a program reads are the session's own values


def by_file(session: CheckpointSession, command: Command) -> None:
    files = files_at(session.checkpoint)
    if command.forecast:  # which changes nothing, and is said in words like the answer
        foretold = ask(files, ForecastOf(command).to_record())
        assert "would" in forecast_text(command, foretold) or isinstance(command, ChangeLinks)
    answer = ask(files, command.to_record())
    assert isinstance(command, ForecastOf) or answer_text(command, answer)


def words(command: Command) -> list[str]:
    """A command as people type it."""
    found = [command.part_of or command.name]
    arguments, options = [], []
    for each, _ in command.fields():
        value = getattr(command, each.name)
        if isinstance(value, tuple):
            value = ",".join(map(str, value))
        if isinstance(command, CorrectCosts):
            value = ", ".join(f"{name} {factor}" for name, factor in command.factors.items())
        if isinstance(value, dict):
            value = next(f"{ends}: {link}" for ends, link in value.items())
        if each.default is not MISSING or each.name == "scheduling":
            options += [] if value is None else [f"--{each.name}", str(value)]
        else:
            arguments.append(str(value))
    flags = [f"--{flag}" for flag in ("cancel", "switch") if flag in command.name]
    return [*found, "CHECKPOINT", *arguments, *options, *flags]


def by_command_line(session: CheckpointSession, command: Command) -> None:
    typed = [*words(command.of), "--dry-run"] if isinstance(command, ForecastOf) else words(command)
    typed[1] = session.checkpoint
    gives_its_lease_back(session)
    shown = CliRunner().invoke(app, typed)
    assert shown.exit_code == 0 and shown.stdout.strip(), shown.output


def by_dashboard(session: CheckpointSession, command: Command) -> None:
    access = Access("127.0.0.1", 8321)
    page = TestClient(Dashboard(session.checkpoint, access).app, base_url="http://127.0.0.1:8321")
    page.get(f"/?token={access.token}", follow_redirects=False)
    headers = {CSRF: access.csrf, "origin": "http://127.0.0.1:8321"}
    wanted = command.of if isinstance(command, ForecastOf) else command
    record = {**wanted.to_record(), "dry_run": isinstance(command, ForecastOf)}
    gives_its_lease_back(session)
    answer = page.post("/api/ask", json=record, headers=headers)
    assert answer.status_code == 200, answer.text


def gives_its_lease_back(session: CheckpointSession) -> None:
    """A request to stop, carried out as the program of a session does it that waits for the end."""
    session.request_stop = session.stop  # type: ignore[method-assign]


def after(door: Callable[[CheckpointSession, Command], None], command: Command, folder: Path) -> dict[str, Any]:
    """What a job is, a batch after a command came through a door."""
    with made_for(command, folder) as session:
        door(session, command)
        if not isinstance(command, StopJob):
            session.push(rows(20))
            session.push(rows(30))
        manifest = session._job.manifest
        assert manifest is not None
        return state_of(manifest)


def state_of(manifest: Manifest) -> dict[str, Any]:
    queries = {
        name: (
            entry.plan,
            entry.status,
            manifest.account(name).mode,
            manifest.account(name).plans.of_slots,
            [(record["status"], record["new_plan"]) for record in manifest.account(name).history],
        )
        for name, entry in manifest.queries.items()
    }
    slots, settings = manifest.slots, manifest.settings
    moved = [(move["groups"], move["trigger"]) for move in slots.moves]
    routing, moving = tuple(slots.routing), slots.doubled is not None
    return {
        "queries": queries,
        "slots": (slots.count, routing, moving, moved),
        "settings": (settings.scheduling, settings.links, settings.costs),
    }


DOORS = {"file": by_file, "command line": by_command_line, "dashboard": by_dashboard}


def through_all_doors(session: CheckpointSession, command: Command) -> None:
    for through in (by_program, *DOORS.values()):
        through(session, command)


def test_every_command_is_asked_for_here():
    assert {name: type(command) for name, command in ASKED.items()} == dict(COMMANDS)


@pytest.fixture(scope="module")
def untouched() -> dict[type[Command] | None, dict[str, Any]]:
    """What jobs are of which nothing was asked, by the command that they were made for."""
    return {}


@pytest.mark.parametrize("name", ASKED)
def test_a_command_does_the_same_through_every_door(name, tmp_path, untouched):
    command = ASKED[name]
    own = type(command) if isinstance(command, OWN) else None
    if own not in untouched:
        untouched[own] = after(lambda _session, _command: None, command, tmp_path / "untouched")
    if not command.changes and not isinstance(command, StopJob):  # one job for all doors: it stays as it was
        assert after(through_all_doors, command, tmp_path / "all") == untouched[own]
        return
    expected = after(by_program, command, tmp_path / "program")
    assert untouched[own] != expected or isinstance(command, StopJob)
    for number, (door, through) in enumerate(DOORS.items()):
        assert after(through, command, tmp_path / str(number)) == expected, door


def test_every_command_that_is_no_part_of_another_can_be_typed():
    wanted = {name for name, kind in COMMANDS.items() if not kind.part_of and kind is not ForecastOf}
    assert wanted <= set(TYPED)


def test_the_dashboard_has_a_form_of_every_command_that_can_be_foretold(tmp_path):
    page = TestClient(Dashboard(str(tmp_path), Access("127.0.0.1", 8321)).app, base_url="http://127.0.0.1:8321")
    forms = {form["command"]: form["fields"] for form in page.get("/api/session").json()["commands"]}
    assert set(forms) == {name for name, kind in COMMANDS.items() if kind.forecast}
    for name, fields in forms.items():
        filled = ASKED[name].to_record()
        left = {field["name"]: filled[field["name"]] if field["required"] else field["initial"] for field in fields}
        assert command_in({"command": name, **left}).name == name


def test_what_the_command_line_lacks_is_named(tmp_path):
    shown = CliRunner().invoke(app, ["migrate", str(tmp_path), "q"])
    assert shown.exit_code == 2 and "migrate needs plan" in shown.output
    shown = CliRunner().invoke(app, ["migrate", str(tmp_path), "q", NEW, "--cancel"])
    assert shown.exit_code == 2 and "cancel does not take plan" in shown.output
    with pytest.raises(ms.InputError, match="there is no forecast of"):
        command_in({"command": "forecast", "of": {"command": "status"}})
