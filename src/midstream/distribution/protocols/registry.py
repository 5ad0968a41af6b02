"""The protocols by name."""

from __future__ import annotations

from midstream.distribution.protocols.mslb import MSLB
from midstream.distribution.protocols.phases import Protocol
from midstream.distribution.protocols.ptlb import PTLB
from midstream.distribution.protocols.split_time import SPLIT_TIME
from midstream.errors import MigrationError

PROTOCOLS: dict[str, Protocol] = {protocol.name: protocol for protocol in (PTLB, MSLB, SPLIT_TIME)}


SHORT = {"split_time": SPLIT_TIME.name}
"""Short names."""


def protocol_of(name: str) -> Protocol:
    """A protocol by its name, or by a short one."""
    name = SHORT.get(name, name)
    if name not in PROTOCOLS:
        raise MigrationError(f"unknown balancing protocol {name!r}", hint=f"use one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]
