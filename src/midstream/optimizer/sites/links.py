"""Links between sites: sending x bytes from one site to another takes `T(x) = latency + x / rate`.

A link is written `eu -> us: 80 ms, 10 MB/s`, and `eu <-> us: …` for both ways. Between sites that have no link, and
within a site, bytes travel for nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from midstream.algebra.time import seconds, size
from midstream.errors import QueryError

HINT = 'write "eu -> us" = "80 ms, 10 MB/s", or "eu <-> us" for both ways'

_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_RATES = {"b/s": 1.0, "kb/s": 1e3, "mb/s": 1e6, "gb/s": 1e9, "kbps": 125.0, "mbps": 125e3, "gbps": 125e6}
_AMOUNT = re.compile(r"\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*([^\s\d,][^\s,]*)\s*")
_ENDS = re.compile(r"\s*(?P<first>.*?)\s*(?P<arrow><->|->)\s*(?P<second>.*?)\s*")


@dataclass(frozen=True, slots=True)
class Link:
    """How long bytes take from one place to another: seconds, and bytes per second."""

    latency: float
    rate: float

    def time(self, size: float, times: float = 1.0) -> float:
        """How long so many bytes take that are sent in so many transmissions: `T(x)` for one."""
        return times * self.latency + size / self.rate

    def __str__(self) -> str:
        return f"{seconds(self.latency)}, {size(self.rate)}/s"


Links = Mapping[tuple[str, str], Link]
"""Links by the sites that they lead from and to."""


def links_of(wanted: Mapping[str, str] | None, sites: Collection[str]) -> Links:
    """Links as they are declared; refuses at the place what is not a link between two declared sites.

    >>> for (sender, receiver), link in links_of({"eu <-> us": "80 ms, 10 MB/s"}, ["eu", "us"]).items():
    ...     print(f"{sender} to {receiver}: {link}")
    eu to us: 80 ms, 10 MB/s
    us to eu: 80 ms, 10 MB/s
    """
    if wanted is None:
        return {}
    if not isinstance(wanted, Mapping):
        raise QueryError(f"links are a table of texts, not {wanted!r}", hint=HINT)
    found: dict[tuple[str, str], Link] = {}
    for ends, link in wanted.items():
        if not isinstance(ends, str) or not isinstance(link, str):
            raise QueryError(f"a link is two texts, not {ends!r} and {link!r}", hint=HINT)
        text = f"{ends}: {link}"
        read = _link(text, len(ends), sites)
        for pair in read:
            if pair in found:
                raise QueryError(
                    f"the link {pair[0]} -> {pair[1]} is declared twice",
                    detail=f"it was {found[pair]} before",
                    hint="name each way between two sites once; <-> names both",
                    text=text,
                    position=0,
                )
        found.update(read)
    return found


def link_texts(texts: Iterable[str]) -> dict[str, str]:
    """Links that are each written as one text, by the sites they are between.

    >>> link_texts(["eu -> us: 80 ms, 10 MB/s"])
    {'eu -> us': '80 ms, 10 MB/s'}
    """
    found: dict[str, str] = {}
    for text in texts:
        ends, colon, link = text.rpartition(":")
        if not colon:
            raise QueryError("a link says what sending takes", hint=HINT, text=text, position=len(text.rstrip()))
        if ends.strip() in found:
            raise QueryError(f"the link {ends.strip()} is declared twice", hint="name it once", text=text, position=0)
        found[ends.strip()] = link.strip()
    return found


def _link(text: str, colon: int, sites: Collection[str]) -> Links:
    """The one or two links of a text whose sites end at the colon."""
    ends = _ENDS.fullmatch(text, 0, colon)
    if ends is None:
        raise QueryError("a link leads from one site to another", hint=HINT, text=text, position=0)
    first, second = ends["first"], ends["second"]
    for part in ("first", "second"):
        if ends[part] not in sites:
            raise QueryError(
                f"the link names the site {ends[part]!r}, which is not declared",
                detail=f"the sites are {', '.join(sites) or 'none'}",
                hint="declare the sites of a link, and the streams that live there",
                text=text,
                position=ends.start(part),
            )
    if first == second:
        raise QueryError(
            f"a link leads to another site than {first}", hint=HINT, text=text, position=ends.start("second")
        )
    link = _measures(text, colon + 1)
    both = ends["arrow"] == "<->"
    return {(first, second): link, **({(second, first): link} if both else {})}


def _measures(text: str, start: int) -> Link:
    latency, place, end = _amount(text, start, "a latency", _SECONDS)
    if latency < 0:
        raise QueryError("a latency cannot be negative", hint=HINT, text=text, position=place)
    if end >= len(text) or text[end] != ",":
        raise QueryError("a link is a latency and a rate with a comma between", hint=HINT, text=text, position=end)
    rate, place, rest = _amount(text, end + 1, "a rate", _RATES)
    if rate <= 0:
        raise QueryError("a rate must be above zero", hint=HINT, text=text, position=place)
    if rest < len(text):
        raise QueryError("a link is a latency and a rate, and nothing else", hint=HINT, text=text, position=rest)
    return Link(latency, rate)


def _amount(text: str, start: int, what: str, units: Mapping[str, float]) -> tuple[float, int, int]:
    """A number with a unit: its value, where it begins and where it ends."""
    begin = start + len(text[start:]) - len(text[start:].lstrip())
    found = _AMOUNT.match(text, start)
    known = ", ".join(units)
    if found is None:
        raise QueryError(f"{what} is a number and a unit", hint=f"the units are {known}", text=text, position=begin)
    unit = found[2] if found[2] in units else found[2].lower()
    try:
        number = float(found[1])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise QueryError(f"{found[1]} is no number", hint=HINT, text=text, position=begin)
    if unit not in units:
        raise QueryError(
            f"{what} has no unit {found[2]}", detail=f"the units are {known}", text=text, position=found.start(2)
        )
    return number * units[unit], begin, found.end()


def links_to_json(links: Links) -> list[list[Any]]:
    """Links as plain values."""
    return [[*pair, link.latency, link.rate] for pair, link in sorted(links.items())]


def links_from_json(kept: Iterable[Sequence[Any]]) -> Links:
    """Links again."""
    return {(sender, receiver): Link(latency, rate) for sender, receiver, latency, rate in kept}


def links_summary(links: Links) -> dict[str, str]:
    """Links as users write them."""
    return {f"{sender} -> {receiver}": str(link) for (sender, receiver), link in sorted(links.items())}


def changes(before: Links, after: Links) -> list[str]:
    """Each link that is another one now, in words.

    >>> changes({("eu", "us"): Link(0.08, 1e7)}, {("eu", "us"): Link(0.5, 1e6)})
    ['the link from eu to us went from 80 ms, 10 MB/s to 500 ms, 1 MB/s']
    """
    found = []
    for pair in sorted({*before, *after}):
        old, new = before.get(pair), after.get(pair)
        if old != new:
            texts = ("nothing" if link is None else str(link) for link in (old, new))
            found.append("the link from {} to {} went from {} to {}".format(*pair, *texts))
    return found
