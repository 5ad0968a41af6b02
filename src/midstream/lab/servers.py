"""Servers that benchmarks and tests start for themselves: PostgreSQL, and the mock cluster within Kafka's client."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from midstream.errors import JobError


class PostgresServer:
    """A PostgreSQL server of one's own, reached by a socket in its folder."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        root = os.getuid() == 0  # which the server refuses to run as
        self.user = "postgres" if root else pwd.getpwuid(os.getuid()).pw_name
        self.as_user: dict[str, Any] = {"user": self.user, "group": self.user} if root else {}
        if root:
            shutil.chown(folder, self.user)
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "midstream", "--no-sync")

    @property
    def url(self) -> str:
        """Its address."""
        return f"postgresql://midstream@/postgres?host={self.folder}"

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        settings = f"-k {self.folder} -c listen_addresses= -c fsync=off -c wal_level=logical"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", settings, "start"
        )

    def stop(self) -> None:
        """Ends it at once, as a crash would."""
        self._run("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "-w", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.programs / program), *arguments],
            **self.as_user,
            cwd="/",
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table."""
        import psycopg

        with psycopg.connect(self.url, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute(f'SELECT * FROM "{table}"').fetchall()

    def run(self, *statements: str) -> None:
        """Runs statements in one transaction."""
        import psycopg

        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server; without PostgreSQL on this machine, an error that names the package."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")) or [Path(shutil.which("pg_ctl") or "")]
    if not found[-1].is_file():
        raise JobError("there is no PostgreSQL server here", hint="apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="midstream-pg-", ignore_cleanup_errors=True) as folder:
        made = PostgresServer(found[-1].parent, Path(folder))
        made.start()
        try:
            yield made
        finally:
            made.stop()


@contextmanager
def kafka_cluster() -> Iterator[str]:
    """The address of a mock cluster in a process of its own; its topics have four partitions of 5 MB."""
    command = [sys.executable, "-m", "midstream.lab.servers"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as cluster:
        assert cluster.stdin is not None and cluster.stdout is not None
        try:
            yield cluster.stdout.readline().strip()
        finally:
            cluster.stdin.close()


def serve_kafka() -> None:
    """Prints the address of a mock cluster, which lives until the input ends."""
    import confluent_kafka

    producer = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve_kafka()
