"""A job without Spark that answers requests through its checkpoint, as a session does: batches by hand, one by one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from threading import Event, Thread
from typing import Any

from tests.job.many import Many

from midstream.checkpoint.commands import command_in
from midstream.checkpoint.lease import Heartbeat
from midstream.job.commands.forecast import forecast, offered_plans
from midstream.job.events import MoveCancelled
from midstream.optimizer.plans import plan_query


@dataclass
class Served(Many):
    """Several queries, and whoever asks for changes of them."""

    stopping: bool = False

    def answer(self, request: dict[str, Any]) -> Any:
        """What the job says to a request."""
        driver = self.driver
        match request:
            case {"command": "forecast", "of": wanted}:
                return forecast(driver, command_in(wanted), self.catalog)
            case {"command": "plans", "query": name}:
                return {"query": name, "plans": offered_plans(driver, driver.queries[name])}
            case {"command": "migrate", "query": name, "plan": plan}:
                query = driver.queries[name]
                target = driver.state.target(query, plan_query(query.plan.query, plan))
                driver.begin_migration(name, target, request["strategy"], "asked for", request["part"])
                return {"query": name, "from": query.plan.text, "to": target.plan.text}
            case {"command": "cancel", "query": name}:
                driver.cancel_migration(name)
                return {"query": name}
            case {"command": "rebalance"}:
                return {"changes": driver.rebalance(None)}
            case {"command": "cancel_rebalance"}:
                driver.apply(MoveCancelled())
                return {"cancelled": True}
            case {"command": "rescale", "slots": slots}:
                return {"changes": driver.rescale(slots)}
            case {"command": "adapt", "query": name, "mode": mode}:
                driver.adapt(name, mode)
                return {"query": name, "to": mode}
            case {"command": "add", "query": name, "cql": cql}:
                return {"query": name, "plan": self.add(name, cql).plan.text}
            case {"command": "resume", "query": name}:
                return {"query": name, **asdict(driver.resume(name))}
            case {"command": "drop", "query": name}:
                self.drop(name)
                return {"query": name}
            case {"command": "stop"}:
                self.stopping = True
                return {"stopping": True}
        raise AssertionError(request)

    @contextmanager
    def serving(self) -> Iterator[Served]:
        """Answers requests, and holds the lease, as a running job does."""
        ended = Event()

        def listen() -> None:
            while not ended.wait(0.05):
                self.driver.requests.answer_all(self.answer)

        thread = Thread(target=listen, daemon=True)
        lease = Heartbeat(self.driver.files)
        lease.work()
        thread.start()
        try:
            yield self
        finally:
            ended.set()
            thread.join()
            lease.stop()
