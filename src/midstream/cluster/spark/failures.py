"""What Spark's own failures are in the user's words: which process died or which file is damaged, and what to do.

A batch that fails leaves no manifest, so whatever the cause, a job that is started again repeats it.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from subprocess import TimeoutExpired

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

from midstream.checkpoint.failures import storage_refusal
from midstream.cluster.spark.environment import is_gone
from midstream.errors import ClusterError, InputError, JobError, MidstreamError

AGAIN = "start the job again: it repeats the batch that was under way"

_UNREADABLE = re.compile(
    r"\[FAILED_READ_FILE[^\]]*\] Encountered error while reading file (\S+?)\.?\s(.*?)SQLSTATE", re.S
)
_OTHER_TYPE = re.compile(r"reading Parquet column (\S+?)\. Expected Spark type (\S+), actual Parquet type (\S+?)\.?$")
_NOT_LISTED = re.compile(r"AccessDeniedException: ([^\n]+?): Permission denied|access=READ\w*, inode=\"([^\"]+)\"")
_NO_SUCH_FILE = re.compile(r"\[FAILED_READ_FILE\.FILE_NOT_EXIST\]|FileNotFoundException")
_CAUSES = re.compile(r"Caused by: [\w.$]+: (.*)")
_CAUSE_LINES = re.compile(r"^(?:Caused by: )?((?:[a-z]\w*\.)+[A-Z][\w$]*(?:: .*)?)$", re.M)
_WORKER = "Python worker exited unexpectedly"
_EXECUTOR = re.compile(r"ExecutorLostFailure \((.*?)\)(?:\n|$)")
_LOG = re.compile(r"(?:Incomplete log file|malformed)[^\n]*", re.I)


def in_words(error: BaseException, spark: SparkSession, place: str) -> BaseException:
    """The error, or what it says in the user's words if it is one of Spark's that is known; `place` is the checkpoint.

    An error that is ours already, and one that nothing is known of, stay as they are, unless it ended Spark's query.
    """
    if isinstance(error, MidstreamError) or not isinstance(error, OSError | Py4JError | PySparkException | EOFError):
        return error
    text = _text(error)
    known = _death(error, spark) or _explained(text, place) or _end_of_stream(error, text)
    if known is None:
        return error
    known.__cause__ = error
    return known


def _text(error: BaseException) -> str:
    """All that Java says of an error: Python's text of it leaves causes out."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    try:
        if java is not None:
            trace = SparkContext._jvm.org.apache.spark.util.Utils.exceptionString(java)  # type: ignore[union-attr]
            return f"{error}\n{trace}"
    except (AttributeError, TypeError, OSError, Py4JError):
        pass
    return str(error)


def _death(error: BaseException, spark: SparkSession) -> ClusterError | None:
    """Whether Spark's own process, with the driver's half of Spark in it, has ended."""
    # Some calls of PySpark take a lost connection for something else, such as a schema that cannot be parsed.
    if not (any(map(_unanswered, _causes_of(error))) or is_gone(spark)):
        return None
    return ClusterError(
        "Spark's process (the Java virtual machine) has ended while the job was running",
        detail=_how_it_ended(),
        hint=f"{AGAIN}; if the system killed it because memory ran out, use smaller batches or give it more memory "
        '(spark = { "spark.driver.memory" = "…" })',
    )


def _causes_of(error: BaseException | None) -> Iterator[BaseException]:
    """The error, and what Spark's Python half made it of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__ if isinstance(error, PySparkException) else None


def _unanswered(error: BaseException) -> bool:
    return isinstance(error, Py4JNetworkError | ConnectionError | EOFError)


def _how_it_ended() -> str | None:
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        code = process.wait(5)  # it has closed its connections, and may not have ended yet
    except TimeoutExpired:
        return None
    if code >= 0:
        return f"it ended with code {code}"
    try:
        return f"it was ended by signal {-code} ({signal.Signals(-code).name})"
    except ValueError:
        return f"it was ended by signal {-code}"


def _explained(text: str, place: str) -> MidstreamError | None:
    """What is known of a failure by what Spark says of it."""
    if found := _UNREADABLE.search(text):
        return _unreadable(found[1], " ".join(found[2].split()), text)
    if _WORKER in text:
        return ClusterError(
            "a Python worker of Spark ended in the middle of a task",
            detail="it was killed, or it crashed: the system ends processes when memory is short",
            hint=f"{AGAIN}; if memory is short, lower memory_per_slot or the rows of a batch",
        )
    if found := _EXECUTOR.search(text):
        return ClusterError("an executor of Spark was lost", detail=found[1][:300], hint=AGAIN)
    if (found := _NOT_LISTED.search(text)) and not (path := found[1] or found[2]).startswith(place):
        return InputError(
            f"a folder of a stream cannot be listed: {path}",
            detail="permission denied",
            hint="make it readable for the user of the job, then start the job again: it resumes where it was",
        )
    refused = storage_refusal(text, place)
    if refused is not None:
        return refused
    if found := _LOG.search(text):
        return JobError(
            f"Spark cannot read its own log in {place}/spark",
            detail=found[0][:300],
            hint="restore Spark's folder of the checkpoint from a copy, or use a new checkpoint",
        )
    return None


def _end_of_stream(error: BaseException, text: str) -> ClusterError | None:
    """An end of Spark's query by a failure that is not among those known: with its last cause, in its words."""
    if not isinstance(error, StreamingQueryException):
        return None
    causes = _CAUSE_LINES.findall(text)
    return ClusterError(
        "Spark ended the job's streaming query",
        detail=causes[-1].strip()[:300] if causes else "it does not say why; its log may",
        hint=f"{AGAIN}; if it ends again in the same way, look for the cause in Spark's log",
    )


def _unreadable(path: str, reason: str, text: str) -> InputError:
    """A file of a stream that Spark cannot read."""
    causes = _CAUSES.findall(text)
    why = reason or (causes[-1].strip() if causes else "")
    if _NO_SUCH_FILE.search(text):
        return InputError(
            f"a stream's file is gone: {path}",
            detail="Spark had listed it for this batch before it was removed",
            hint="put it back, then start the job again; files may be removed only once their batch is done",
        )
    if found := _OTHER_TYPE.search(why):
        column, declared, written = (each.strip('[]`"') for each in found.groups())
        return InputError(
            f"a stream's file has another type in column {column}: {path}",
            detail=f"the stream's schema says {declared}, the file has {written}",
            hint="declare the column's type as the files have it, or write the file again, then start the job again",
        )
    return InputError(
        f"a stream's file cannot be read: {path}",
        detail=why[:400] or None,
        hint="replace it by a whole file with the stream's columns and types, then start the job again; or set the "
        'stream\'s options = { ignoreCorruptFiles = "true" } to continue without damaged files, losing their rows',
    )
