"""A mock cluster of Kafka in a process of its own, which prints its address and lives until its input ends."""

from __future__ import annotations

import sys


def serve() -> None:
    """Serves until the input ends."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve()
