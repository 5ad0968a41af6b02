"""The fields of commands: what each holds, what people are told of it, and by which check its values pass."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import Any

from midstream.algebra.names import check_name
from midstream.errors import InputError, instead_of

LONGEST_TEXT = 100_000
"""How many characters a query or a plan has at most."""


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What a field of a command holds. Its check takes plain values as JSON has them, or a text as people write it."""

    name: str
    check: Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class CommandField:
    """What people are told of a field, and what it must be; `choices` are found when they are needed."""

    kind: FieldKind
    help: str
    choices: Callable[[], Sequence[str]] | None = None

    def checked(self, name: str, value: Any) -> Any:
        """The value of a field of this name; refuses one that it cannot have."""
        if self.choices is None:
            return self.kind.check(name, value)
        known = self.choices()
        if value not in known:
            raise InputError(f"unknown {name} {value!r:.80}", hint=instead_of(value, known))
        return str(value)


def _stored_name(name: str, value: Any) -> str:
    """The name of a query, or of one that was replaced with a batch."""
    query, _, batch = value.partition("@") if isinstance(value, str) else (value, "", "")
    check_name(name, query if batch.isdecimal() else value)
    return str(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > LONGEST_TEXT:
        raise InputError(f"{name} must be a text of at most {LONGEST_TEXT:,} characters")
    return value


def _number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError(f"{name} must be a whole number above zero, not {value!r:.80}")
    return value


def _slots(name: str, value: Any) -> tuple[int, ...]:
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    numbers: list[Any] = [int(p) if isinstance(p, str) and p.strip().isdecimal() else p for p in parts]
    if not numbers or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise InputError(
            f"{name} must be a list of slots, not {value!r:.80}", hint="name them by their numbers, such as 1 or 0,2"
        )
    return tuple(numbers)


def _duration(name: str, value: Any) -> str | int:
    """A stretch of stream time: a number of ticks, or a number with a unit."""
    if isinstance(value, bool) or not isinstance(value, int | str) or len(str(value)) > 100:
        raise InputError(f"{name} must be a duration, not {value!r:.80}", hint='write for instance "10 minutes"')
    return int(value) if isinstance(value, str) and value.strip().isdecimal() else value


def _links(name: str, value: Any) -> Mapping[str, str]:
    """Links by the sites they are between, or each as one text; what they mean is for the job to judge."""
    from midstream.optimizer.sites.links import HINT, link_texts

    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        value = link_texts(value)
    if not isinstance(value, Mapping) or not value or len(value) > 1000:
        raise InputError(f"{name} must be a table of links, not {value!r:.80}", hint=HINT)
    return {_text("a link", ends): _text("a link", link) for ends, link in value.items()}


def _factors(name: str, value: Any) -> dict[str, float]:
    """Factors by the names of costs, or as one text, such as "probe 1.2, second 0.5"; "reset": none."""
    from midstream.adaptation.cost_corrections import factors_of

    if isinstance(value, str) and value.strip() == "reset":
        return {}
    if isinstance(value, str):
        parts = [part.split() for part in value.replace("=", " ").split(",")]
        if not all(len(part) == 2 and _NUMBER.fullmatch(part[1]) for part in parts):
            raise InputError(f"{name} must be costs and factors, not {value!r:.80}", hint='such as "probe 1.2, give 2"')
        value = {cost: float(factor) for cost, factor in parts}
    if not isinstance(value, Mapping):
        raise InputError(f"{name} must be a table of costs and factors, not {value!r:.80}")
    return factors_of(value)


_NUMBER = re.compile(r"\d{1,4}(\.\d{1,20})?")

NAME, STORED_NAME = FieldKind("query", check_name), FieldKind("query", _stored_name)
NEW_NAME, TEXT, CQL = FieldKind("name", check_name), FieldKind("text", _text), FieldKind("cql", _text)
PLAN, NUMBER, SLOTS = FieldKind("plan", _text), FieldKind("number", _number), FieldKind("slots", _slots)
DURATION, LINKS, FACTORS = (
    FieldKind("duration", _duration),
    FieldKind("links", _links),
    FieldKind("factors", _factors),
)


def asked_field(
    kind: FieldKind, help: str, default: Any = MISSING, choices: Callable[[], Sequence[str]] | None = None
) -> Any:
    """A field of a command; one without a default must be given."""
    return field(default=default, metadata={"asked": CommandField(kind, help, choices)})
