r"""What the shell itself is told: `\stream`, `\streams`, `\explain`, `\limit` and others, one function each."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from midstream.api import Question, ask
from midstream.cluster.finite_run import FiniteRun
from midstream.cluster.local.embedded import run
from midstream.cluster.local.observing import observe
from midstream.errors import InputError, QueryError
from midstream.inputs import Duration
from midstream.interface.cli.explain import explained
from midstream.interface.plain_values import columns_as_json, table_as_json
from midstream.interface.shell.answers import ShellAnswer, Write
from midstream.interface.shell.statements import Statement, statements
from midstream.interface.shell.streams import FileStream, FileStreams, arguments_of, declaration_of
from midstream.language.text import read as read_query
from midstream.optimizer.explanation import explain_plan
from midstream.optimizer.plans import enumerate_plans, plan_query

BATCH_ROWS = 5_000
DEEPEST_READ = 8
"""How many files may read each other."""

HELP = r"""A query ends with a semicolon:  SELECT k, count(*) FROM A [RANGE 10] GROUP BY k;

\stream NAME PATH [time=COLUMN] [lateness=DURATION]   rows of a file, a folder or a pattern (CSV, Parquet, JSON lines)
CREATE STREAM NAME FROM 'PATH' TIME COLUMN;           the same
CREATE MACRO NAME(A, B) AS A * (1 - B);               a value that later queries call
\streams             the streams and their columns
\explain CQL         what a query means, what would run, and its cost; also  EXPLAIN CQL;
\plans CQL           equivalent plans, best first
\plan SHAPE          force a plan for the queries that follow; without a shape, the optimizer chooses again
\limit N             how many rows are shown; 0 shows all
\read FILE           run the statements of a file
\help, \quit"""


class Leave(Exception):
    """The shell is to end."""


@dataclass(slots=True)
class Shell:
    """The streams and settings of a shell, and where it writes."""

    write: Write
    write_json: Callable[[dict[str, object]], None] | None = None
    streams: FileStreams = field(default_factory=FileStreams)
    limit: int = 50
    plan: str | None = None
    depth: int = 0
    macros: str = ""
    """The statements that have defined some."""

    def do(self, statement: Statement) -> None:
        """Carries out a statement."""
        text = statement.text
        if statement.is_command:
            name, _, rest = text[1:].partition(" ")
            self._command(name.lower())(rest.strip().removesuffix(";").strip())
            return
        declared = declaration_of(text.strip())
        explain = re.match(r"\s*EXPLAIN\b", text, re.IGNORECASE)
        if declared is not None:
            self._declare(*declared)
        elif re.match(r"\s*CREATE\b", text, re.IGNORECASE):
            macros = f"{self.macros}{text};\n"
            read_query(f"{macros}SELECT 1")
            self.macros = macros
        elif explain:
            self.explain(text[explain.end() :])
        else:
            self.query(text)

    def _command(self, name: str) -> Callable[[str], None]:
        known = COMMANDS.get(name)
        if known is None:
            raise InputError(f"unknown command \\{name}", hint=r"\help lists the commands")
        return lambda rest: known(self, rest)

    def query(self, cql: str) -> None:
        """Answers a query; rows are shown as soon as they are known."""
        question = self._question(cql)
        answer = ShellAnswer(self.write, self.limit)
        shown = None if self.write_json is not None else answer.take
        how = FiniteRun(self.plan, batch_rows=BATCH_ROWS, results=shown)
        table = run(question.plan, question.tables, question.catalog, how)
        if self.write_json is not None:
            self.write_json(table_as_json(table, self.limit))
        else:
            answer.end(table.schema)

    def explain(self, cql: str) -> None:
        """Shows a query's plan, with what the files tell of its streams."""
        question = self._question(cql)
        statistics = observe(question.plan, question.tables, question.catalog)
        explanation = explain_plan(plan_query(question.plan, self.plan, statistics=statistics), statistics)
        if self.write_json is not None:
            self.write_json({"logical_plan": str(question.plan), **explanation.as_dict()})
        else:
            self.write(explained(str(question.plan), explanation))

    def plans(self, cql: str) -> None:
        """Lists equivalent plans, best first."""
        question = self._question(cql)
        statistics = observe(question.plan, question.tables, question.catalog)
        found = [plan.text for plan in enumerate_plans(question.plan, statistics=statistics)]
        if self.write_json is not None:
            self.write_json({"plans": found})
        else:
            self.write("\n".join(text or "without joins" for text in found))

    def stream(self, rest: str) -> None:
        """Declares a stream."""
        self._declare(*arguments_of(rest))

    def _declare(self, name: str, path: str, time: str | None, lateness: Duration | None) -> None:
        declared = self.streams.declare(name, path, time, lateness)
        if self.write_json is None:
            self.write(_stream_text(declared))

    def show_streams(self, _: str) -> None:
        """Lists the streams."""
        if self.write_json is not None:
            self.write_json({"streams": [_as_json(stream) for stream in self.streams.named.values()]})
            return
        if not self.streams.named:
            self.write(r"no streams yet; \stream NAME PATH declares one")
        for stream in self.streams.named.values():
            self.write(_stream_text(stream))

    def set_plan(self, rest: str) -> None:
        """Forces a plan, or none."""
        self.plan = rest or None

    def set_limit(self, rest: str) -> None:
        """Sets how many rows are shown."""
        if not rest.isdigit():
            raise InputError(f"a limit is a number of rows, not {rest!r}", hint=r"\limit 0 shows all")
        self.limit = int(rest)

    def read(self, rest: str) -> None:
        """Carries out the statements of a file."""
        if self.depth >= DEEPEST_READ:
            raise InputError("files read each other in a circle, or too deep")
        self.depth += 1
        try:
            lines = Path(rest).expanduser().read_text(encoding="utf-8").splitlines()
            self.do_all(lines, rest)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"cannot read {rest}", detail=str(error)) from error
        finally:
            self.depth -= 1

    def do_all(self, lines: Iterable[str], source: str) -> None:
        """Carries out all statements of a text; the first that fails ends it and says where it begins."""
        for statement in statements(lines):
            try:
                self.do(statement)
            except (InputError, QueryError) as error:
                error.add_note(f"in {source}, in the statement that begins on line {statement.line}")
                raise

    def help(self, _: str) -> None:
        """Shows what can be said."""
        self.write(HELP)

    def leave(self, _: str) -> None:
        """Ends the shell."""
        raise Leave

    def _question(self, cql: str) -> Question:
        if not self.streams.named:
            raise InputError("there are no streams yet", hint=r"\stream NAME PATH declares one")
        times, late = self.streams.settings()
        tables: dict[str, pa.Table] = {
            name: stream.rows()
            for name, stream in self.streams.named.items()
            if re.search(rf"\b{re.escape(name)}\b", cql, re.IGNORECASE)
        }
        named = {name: tables.get(name, stream.columns.empty_table()) for name, stream in self.streams.named.items()}
        return ask(self.macros + cql, named, time=times, lateness=late)


def _as_json(stream: FileStream) -> dict[str, object]:
    record = {"name": stream.name, "path": stream.path, "time": stream.time}
    return {**record, "columns": columns_as_json(stream.columns)}


def _stream_text(stream: FileStream) -> str:
    columns = ", ".join(f"{f.name} {f.type}" for f in stream.columns)
    return f"{stream.name} from {stream.path}, time {stream.time}: {columns}"


COMMANDS: dict[str, Callable[[Shell, str], None]] = {
    "stream": Shell.stream,
    "streams": Shell.show_streams,
    "explain": Shell.explain,
    "plans": Shell.plans,
    "plan": Shell.set_plan,
    "limit": Shell.set_limit,
    "read": Shell.read,
    "help": Shell.help,
    "quit": Shell.leave,
    "q": Shell.leave,
}
