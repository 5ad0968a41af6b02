"""What people may ask of a running job, checked before it is sent: the command line and the dashboard ask alike.

A request is plain values. Only known commands with known fields of the right kind pass; what they mean is for the job
to judge, which knows its queries and streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from midstream.algebra.names import check_name
from midstream.checkpoint import lease
from midstream.checkpoint.addresses import files_at
from midstream.checkpoint.control import Request, ask
from midstream.errors import InputError, JobError
from midstream.optimizer.sites.links import HINT

LONGEST_TEXT = 100_000
"""How many characters a query or a plan has at most."""

STRATEGIES = (
    "auto",
    "moving_state",
    "moving_state_paced",
    "parallel_track",
    "genmig",
    "genmig_reference_point",
    "genmig_shortened",
)

PROTOCOLS = ("auto", "mslb", "split_time", "split_time_balancing", "ptlb")

Check = Callable[[str, Any], Any]


def _stored_name(field: str, value: Any) -> str:
    """The name of a query, or of one that was replaced with a batch."""
    name, _, batch = value.partition("@") if isinstance(value, str) else (value, "", "")
    check_name(field, name if batch.isdecimal() else value)
    return str(value)


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
        raise InputError(f"{field} must be a text of at most {LONGEST_TEXT:,} characters")
    return value


def _optional_text(field: str, value: Any) -> str | None:
    return None if value is None else _text(field, value)


def _number(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{field} must be a whole number above zero, not {value!r:.80}")
    return value


def _slots(field: str, value: Any) -> list[int] | None:
    """Slots by their numbers, or all of them."""
    if value is None:
        return None
    numbers = list(value) if isinstance(value, list | tuple) else []
    if not numbers or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise InputError(f"{field} must be a list of slots, not {value!r:.80}", hint="name them by their numbers")
    return numbers


def _duration(field: str, value: Any) -> str | int | None:
    """A stretch of stream time, or none: a number of ticks, or a number with a unit."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 100:
        raise InputError(f"{field} must be a duration, not {value!r:.80}", hint='write for instance "10 minutes"')
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def _links(field: str, value: Any) -> dict[str, str]:
    """Links by the sites they are between; what they mean is for the job to judge."""
    if not isinstance(value, Mapping) or len(value) > 1000:
        raise InputError(f"{field} must be a table of links, not {value!r:.80}", hint=HINT)
    return {_text("a link", ends): _text("a link", link) for ends, link in value.items()}


def _one_of(*known: str) -> Check:
    def check(field: str, value: Any) -> str:
        if value not in known:
            near = get_close_matches(str(value), known, 1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
            raise InputError(f"unknown {field} {value!r:.80}", hint=hint)
        return str(value)

    return check


COMMANDS: Mapping[str, Mapping[str, Check]] = {
    "status": {},
    "plan": {"query": check_name},
    "plans": {"query": check_name},
    "migrate": {
        "query": check_name,
        "plan": _text,
        "strategy": _one_of(*STRATEGIES),
        "part": _one_of("auto", "smallest", "whole"),
        "verify": _duration,
        "slots": _slots,
    },
    "cancel": {"query": check_name},
    "schedule": {"scheduling": _text},
    "add": {"query": check_name, "cql": _text, "adaptive": _one_of("off", "suggest", "auto")},
    "drop": {"query": _stored_name},
    "resume": {"query": check_name},
    "rebalance": {"protocol": _one_of(*PROTOCOLS), "by": _optional_text},
    "cancel_rebalance": {},
    "rescale": {"slots": _number},
    "links": {"links": _links},
    "adapt": {"query": check_name, "mode": _one_of("off", "suggest", "auto")},
    "stop": {},
}
"""The fields of each command, and what each must be."""

OPTIONAL: Mapping[str, str | None] = {
    "strategy": "auto",
    "part": "auto",
    "adaptive": "off",
    "verify": None,
    "slots": None,
    "protocol": "auto",
    "by": None,
}


def checked(request: Mapping[str, Any]) -> Request:
    """A request of known fields only; refuses any other."""
    command = request.get("command")
    fields = COMMANDS.get(command) if isinstance(command, str) else None
    if fields is None:
        raise InputError(f"unknown command {command!r:.80}", hint=f"use one of {', '.join(COMMANDS)}")
    unknown = sorted(set(request) - {"command", *fields})
    if unknown:
        raise InputError(f"{command} does not take {', '.join(map(str, unknown))[:80]}")
    found: Request = {"command": command}
    for field, check in fields.items():
        if field not in request and field not in OPTIONAL:
            raise InputError(f"{command} needs {field}")
        found[field] = check(field, request.get(field, OPTIONAL.get(field)))
    return found


def asked(checkpoint: str, patience: float, *, dry_run: bool = False, **request: Any) -> Any:
    """What a running job answers to a request; in a dry run, what the request would do."""
    wanted = checked(request)
    if dry_run or wanted["command"] == "plans":
        wanted = {"command": "forecast", "of": wanted}
    files = files_at(checkpoint)
    if not files.list(lease.FOLDER):
        # Asking makes folders, and waits: neither helps where no job has ever run.
        raise JobError(f"no job has run at {files.uri}", hint="check the path: it is the job's checkpoint")
    return ask(files, wanted, patience=patience)
