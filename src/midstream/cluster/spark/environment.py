"""What Spark needs before anything runs: Java, a session with sensible settings, and this package on its executors."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from midstream.cluster.spark.quiet import TRACEBACK
from midstream.cluster.spark_version import OLDEST_JAVA, java_program, java_version, require_version
from midstream.errors import JobError

LOGGING = Path(__file__).parent / "log4j2.properties"
"""What Spark's own process logs, and where."""

SETTINGS: dict[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stopTimeout": "60s",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.python.worker.reuse": "true",
}
"""What a session of our own sets; a session given by the user is left as it is."""

LOG_WRITER = "spark.sql.streaming.checkpointFileManagerClass"

FILE_SYSTEM_LOG_WRITERS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager",
)
"""What writes Spark's logs without starting processes; its name depends on Spark's version."""

BATCH_SETTINGS: dict[str, str] = {"spark.sql.adaptive.enabled": "false"}
"""What is set in the copy of the session that Spark makes for a streaming query, whoever made the session."""

ROWS_AT_ONCE = "spark.sql.execution.arrow.maxRecordsPerBatch"
"""How many rows cross into Python at once; set there too, by the memory of a slot and the width of a row."""


def spark_session(master: str | None = None, name: str = "midstream", **settings: Any) -> SparkSession:
    """The active session, or a new local one with settings that suit continuous queries."""
    active = SparkSession.getActiveSession()
    if active is not None and master is None and not settings:
        return active
    require_java()
    master = master or "local[*]"
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(name)
    chosen = {**SETTINGS, "spark.sql.shuffle.partitions": str(os.cpu_count() or 2), **settings}
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        chosen = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", **chosen}
    if not os.environ.get(TRACEBACK):
        chosen.setdefault("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    for key, value in chosen.items():
        builder = builder.config(key, str(value))
    _start_apart({"spark.master": master, "spark.app.name": name, **chosen})
    spark = builder.getOrCreate()
    if master.startswith("local") and LOG_WRITER not in settings:
        _write_logs_in_process(spark)
    return spark


def _write_logs_in_process(spark: SparkSession) -> None:
    """Has Spark write its logs itself.

    By default it asks `readlink` and `chmod` about each of them where Hadoop's native library is missing, as it mostly
    is: some forty processes a batch, which take as long as everything else in a small one.
    """
    loader = spark.sparkContext._jvm.Thread.currentThread().getContextClassLoader()  # type: ignore[union-attr]
    for name in FILE_SYSTEM_LOG_WRITERS:
        try:
            loader.loadClass(name)
        except Py4JJavaError:
            continue
        spark.conf.set(LOG_WRITER, name)
        return


def _start_apart(settings: Mapping[str, Any]) -> None:
    """Starts Spark's process in a group of its own.

    A signal to our group, which is how shells and supervisors stop a job, then reaches us alone, and we end what is
    under way in order. Spark still ends with us: it watches a pipe that we hold.
    """
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    conf = SparkConf(loadDefaults=False).setAll([(key, str(value)) for key, value in settings.items()])
    gateway = launch_gateway(conf, {"start_new_session": True})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def require_java() -> None:
    """Says what to install if there is no Java that Spark can use."""
    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        return
    home, java = os.environ.get("JAVA_HOME"), java_program()
    if java is None:
        raise JobError(
            "Spark needs Java, and none was found",
            detail=f"JAVA_HOME is {home}" if home else "JAVA_HOME is not set and there is no java on the PATH",
            hint=f"install Java {OLDEST_JAVA} or later (for instance openjdk-17-jre-headless), or set JAVA_HOME",
        )
    version = java_version(java)
    if version is not None and version < OLDEST_JAVA:
        raise JobError(
            f"Spark needs Java {OLDEST_JAVA} or later, but {java} is Java {version}",
            hint="install a newer one, or point JAVA_HOME to it",
        )


def require_classic(spark: object) -> SparkSession:
    """The session, unless it is one that cannot run our steps."""
    if "connect" in type(spark).__module__:
        raise JobError(
            "Midstream cannot run through Spark Connect",
            detail="it commits each batch in the driver's process, which a Connect client is not",
            hint="start the job with spark-submit, or give it a classic SparkSession",
        )
    if not isinstance(spark, SparkSession):
        raise JobError(f"a SparkSession is needed, not a {type(spark).__name__}")
    require_version(spark.version)
    return spark


def is_gone(spark: SparkSession) -> bool:
    """Whether Spark has ended, or its process has."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except (AttributeError, OSError, Py4JError):
        return True


def ship_package(spark: SparkSession) -> None:
    """Makes this package importable on the executors; they get this very version."""
    context = spark.sparkContext
    if getattr(context, "_midstream_shipped", False):
        return
    _use_this_python(context)
    context.addPyFile(_package_zip(_temporary_folder(context)))
    context._midstream_shipped = True  # type: ignore[attr-defined]


def is_one_process(spark: SparkSession) -> bool:
    """Whether tasks run in the driver's own JVM: `local[2]`, but not `local-cluster[…]`."""
    master = spark.sparkContext.master or ""
    return master == "local" or master.startswith("local[")


def _use_this_python(context: SparkContext) -> None:
    """On this machine, lets workers run the interpreter that runs the driver, unless the user chose another.

    Spark would take whatever `python3` the path leads to, which need not have Midstream's libraries.
    """
    chosen = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python", None)
    if (context.master or "").startswith("local") and not chosen:
        context.pythonExec = sys.executable


def _temporary_folder(context: SparkContext) -> Path:
    """A folder that Spark removes when it ends, also when our process is killed."""
    return Path(context._temp_dir)


def _package_zip(folder: Path) -> str:
    root = Path(__file__).parents[2]
    path = folder / "midstream.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(root.rglob("*.py")):
            archive.write(file, Path("midstream") / file.relative_to(root))
    return str(path)
