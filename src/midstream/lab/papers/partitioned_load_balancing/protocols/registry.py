"""The protocols by name."""

from __future__ import annotations

from midstream.errors import MigrationError
from midstream.lab.papers.partitioned_load_balancing.protocols.mslb import MSLB
from midstream.lab.papers.partitioned_load_balancing.protocols.phases import Protocol
from midstream.lab.papers.partitioned_load_balancing.protocols.ptlb import PTLB
from midstream.lab.papers.partitioned_load_balancing.protocols.split_time import SPLIT_TIME

PROTOCOLS: dict[str, Protocol] = {protocol.name: protocol for protocol in (PTLB, MSLB, SPLIT_TIME)}


SHORT = {"split_time": SPLIT_TIME.name}
"""Short names."""


def protocol_of(name: str) -> Protocol:
    """A protocol by its name, or by a short one."""
    name = SHORT.get(name, name)
    if name not in PROTOCOLS:
        raise MigrationError(f"unknown balancing protocol {name!r}", hint=f"use one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
