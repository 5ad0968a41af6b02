"""Spark Connect: why a session cannot run through it, and that it is refused by name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, os, sys, time
from pathlib import Path

os.environ["PYSPARK_PYTHON"] = sys.executable
from pyspark.sql import SparkSession
import midstream as ms

spark = SparkSession.builder.remote("local[1]").getOrCreate()
told = {"client": os.getpid()}
try:
    ms.Session(spark, checkpoint="checkpoint")
except ms.JobError as error:
    told["refused"] = str(error)
seen = []

def batch(rows, number):
    seen.append(number)
    with open("batches", "a") as file:
        file.write(f"{os.getpid()} {len(seen)}\\n")

rows = spark.readStream.format("rate").load()
stream = rows.writeStream.foreachBatch(batch).trigger(processingTime="1 second").start()
until = time.monotonic() + 120
while time.monotonic() < until and not (Path("batches").exists() and Path("batches").read_text().count("\\n") >= 2):
    time.sleep(0.2)
stream.stop()
told["seen"] = seen
told["processes"] = [int(line.split()[0]) for line in Path("batches").read_text().splitlines()]
for name in ("sparkContext", "_jvm"):
    try:
        getattr(spark, name)
    except Exception as error:
        told[name] = type(error).__name__
spark.stop()
print("told " + json.dumps(told))
"""


@pytest.mark.slow
def test_batches_of_connect_run_in_another_process_than_the_session_and_so_it_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="Spark Connect's client is not installed: pip install 'pyspark[connect]'")
    answer = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    lines = [line for line in answer.stdout.splitlines() if line.startswith("told ")]
    assert lines, answer.stderr[-3000:]
    told = json.loads(lines[0].removeprefix("told "))
    assert "Midstream cannot run through Spark Connect" in told["refused"]
    # What a session knows (sinks, listeners, what is asked of it, the lease) lies in the client's process, and a batch
    # runs on a copy of it elsewhere: what one does there, the other never sees.
    assert told["seen"] == [] and told["client"] not in told["processes"]
    # Nor is there a way to ship the package, or to ask Spark how large a batch is before it is read.
    assert {told["sparkContext"], told["_jvm"]} == {"PySparkAttributeError"}
