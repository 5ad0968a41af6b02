"""What people ask of the job while it is struck: some of it is typed as commands, the rest is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from midstream.lab.chaos.queries import COMING, PLANS, STRATEGIES

TYPED = {"add": ("query", "cql"), "migrate": ("query", "plan"), "adapt": ("query", "mode"), "drop": ("query",)}
"""The requests that are typed, with the values that are typed without the name of an option."""

KINDS = (*TYPED, "add", "migrate", "migrate", "cancel", "rebalance", "cancel_rebalance", "rescale", "schedule")


class Requests:
    """Draws all kinds of requests in turn, in any order, and counts them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.made: Counter[str] = Counter()
        self._dealt: list[str] = []

    def drawn(self) -> dict[str, Any]:
        """The next request; it may be refused."""
        if not self._dealt:
            self._dealt = [*KINDS]
            self.random.shuffle(self._dealt)
        kind = self._dealt.pop()
        self.made[kind] += 1
        return _request(kind, self.random)


def _request(kind: str, random: Random) -> dict[str, Any]:
    """A request of a kind."""
    match kind:
        case "migrate":
            verify = {"verify": "20"} if random.random() < 0.2 else {}
            values = {"query": "joined", "plan": random.choice(PLANS), "strategy": random.choice(STRATEGIES), **verify}
        case "cancel":
            values = {"query": "joined"}
        case "add":
            name = random.choice(sorted(COMING))
            values = {"query": name, "cql": COMING[name].cql}
        case "drop":
            values = {"query": random.choice(sorted(COMING))}
        case "adapt":
            values = {"query": "joined", "mode": random.choice(["off", "suggest", "auto"])}
        case "rebalance":
            protocol = random.choice(["auto", "mslb", "split_time"])
            return {"command": kind, "routing": [random.randrange(2) for _ in range(256)], "protocol": protocol}
        case "rescale":
            return {"command": kind, "slots": random.randint(1, 3)}
        case "schedule":
            values = {"scheduling": random.choice(["dfs", "bfs", "chain"])}
        case _:
            values = {}
    return {"command": kind, **values}


def words_of(checkpoint: Path, request: Mapping[str, Any]) -> list[str]:
    """A request as it is typed."""
    plain = TYPED[request["command"]]
    rest = {name: value for name, value in request.items() if name not in ("command", *plain)}
    options = [word for name, value in rest.items() for word in (f"--{name}", str(value))]
    typed = [request["command"], str(checkpoint), *(request[name] for name in plain)]
    return [*typed, *options, "--timeout", "5"]
