"""Sites: named sets of slots at which streams live.

The rows of a stream that lives at a site come in at its slots. Where they must lie by a key they travel from there, and
a routed join keeps the stream's window by key among these slots. Slots are not pinned to hosts: a site says between
which slots rows travel, and which executors run them is Spark's to say. Where streams live at sites, slots are fixed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from midstream.algebra.names import check_name
from midstream.checkpoint.manifest import Manifest
from midstream.distribution.fragments import Route
from midstream.errors import InputError, JobError

Sites = Mapping[str, tuple[int, ...]]


def sites_of(wanted: Mapping[str, Sequence[int]] | None) -> Sites:
    """Sites as they are declared, by name; refuses what is not a set of slots.

    >>> sites_of({"eu": [0, 1], "us": [2]})
    {'eu': (0, 1), 'us': (2,)}
    """
    found: dict[str, tuple[int, ...]] = {}
    for name, slots in (wanted or {}).items():
        check_name("site", name)
        if isinstance(slots, str) or not isinstance(slots, Sequence) or not all(map(_is_slot, slots)) or not slots:
            raise InputError(
                f"site {name} is a list of slots, not {slots!r}", hint='write {"eu": [0, 1], "us": [2, 3]}'
            )
        found[name] = tuple(sorted(set(slots)))
    return found


def _is_slot(slot: Any) -> bool:
    return isinstance(slot, int) and not isinstance(slot, bool) and slot >= 0


def require_slots_of_sites(sites: Sites, slots: int) -> None:
    """Refuses sites with slots that a job does not have."""
    for name, of_site in sites.items():
        if of_site[-1] >= slots:
            raise JobError(
                f"site {name} names slot {of_site[-1]}, which the job does not have",
                detail=f"its slots are 0 to {slots - 1}",
                hint=f"open it with slots={of_site[-1] + 1} or more, another number than it was last opened with",
            )


def require_fixed(sites: Sites, **moving: object) -> None:
    """Refuses options by which slots would be added, removed or given other groups."""
    unfit = [name for name, said in moving.items() if said]
    if sites and unfit:
        raise JobError(f"a job with sites has no {' and no '.join(unfit)}", detail="the slots of sites are fixed")


def home_of(stream: str, site: str | None, sites: Sites) -> Route:
    """How the rows of a stream come in that lives at a site, or anywhere."""
    if site is None:
        return Route(None)
    if site not in sites:
        known = ", ".join(sites) or "none"
        raise InputError(
            f"stream {stream} lives at site {site!r}, which is not declared",
            detail=f"the sites are {known}",
            hint=f'declare it: sites={{"{site}": [0, 1]}} of the session, or the key sites of a job',
        )
    return Route(None, slots=sites[site])


def require_home(manifest: Manifest | None, stream: str, home: Route, slots: int, wanted: int) -> None:
    """Refuses a home where a stream cannot live in a job that has, or goes over to, some number of slots."""
    _require_same_home(manifest, stream, home)
    if home.slots:
        _require_slots_of_home(stream, home, slots, wanted)


def _require_same_home(manifest: Manifest | None, stream: str, home: Route) -> None:
    """Refuses that a stream moves while there is a checkpoint: its windows lie at the old site."""
    if manifest is None or stream not in manifest.settings.arrival:
        return
    before = tuple(manifest.settings.homes.get(stream, ()))
    if before != home.slots:
        raise JobError(
            f"stream {stream} cannot move: in the checkpoint it lives {_named(before)}, now {_named(home.slots)}",
            hint="declare the sites that it was made with, or use a new checkpoint",
        )


def _require_slots_of_home(stream: str, home: Route, slots: int, wanted: int) -> None:
    """Refuses a home in slots that a job does not have, or while it goes over to another number of them."""
    if slots != wanted:
        raise JobError(
            f"stream {stream} cannot live at a site yet: the job goes over from {slots} to {wanted} slots",
            hint="add it once the job has gone over",
        )
    if home.slots[-1] >= slots:
        raise JobError(
            f"stream {stream} would live in slot {home.slots[-1]}, which the job does not have",
            detail=f"its slots are 0 to {slots - 1}",
            hint=f"go over to {home.slots[-1] + 1} slots first: rescale({home.slots[-1] + 1})",
        )


def require_no_homes(routes: Mapping[str, Route], what: str) -> None:
    """Refuses to change slots while streams live at sites."""
    living = sorted(name for name, route in routes.items() if route.slots)
    if living:
        raise JobError(
            f"a job with sites cannot {what}",
            detail=f"{', '.join(living)} live in slots that are fixed",
            hint="leave the sites out, on a new checkpoint",
        )


def _named(slots: Sequence[int]) -> str:
    return f"in slots {', '.join(map(str, slots))}" if slots else "in any slot"
