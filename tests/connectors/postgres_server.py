"""A PostgreSQL server that tests start for themselves."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class Server:
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
        return f"postgresql://midstream@/postgres?host={self.folder}"

    def start(self) -> None:
        settings = f"-k {self.folder} -c listen_addresses= -c fsync=off -c wal_level=logical"
        self._run(
            "pg_ctl", "-D", str(self.folder / "data"), "-w", "-l", str(self.folder / "log"), "-o", settings, "start"
        )

    def stop(self) -> None:
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
        import psycopg

        with psycopg.connect(self.url, row_factory=psycopg.rows.dict_row) as connection:
            return connection.execute(f'SELECT * FROM "{table}"').fetchall()

    def run(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self.url) as connection:
            for statement in statements:
                connection.execute(statement)


@contextmanager
def postgres_server() -> Iterator[Server]:
    """A server, or a skipped test that says what is missing."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")) or [Path(shutil.which("pg_ctl") or "")]
    if not found[-1].is_file():
        pytest.skip("there is no PostgreSQL server here: apt-get install postgresql")
    with tempfile.TemporaryDirectory(prefix="midstream-pg-", ignore_cleanup_errors=True) as folder:
        made = Server(found[-1].parent, Path(folder))
        made.start()
        yield made
        made.stop()
