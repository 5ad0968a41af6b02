"""A job whose tasks wait while a file is there: `python selecting_process.py FOLDER MASTER ALL`.

By then Spark has selected the rows, so an executor that is lost takes observed output with it. At the end the job tells
what it counted, and whether it had to count anew. `ALL` says whether Spark tells of all runs of tasks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa


def main(folder: Path, master: str, all_attempts: str) -> None:
    """Works through all there is in one batch."""
    from tests.spark.settings import SHORT_LIVED

    import midstream as ms
    from midstream.cluster.spark import spark_session
    from midstream.cluster.spark.push_down import ALL_ATTEMPTS, PushDown

    anew: list[int] = []
    count = PushDown._counted_anew

    def noted(self: PushDown) -> dict[str, int]:
        anew.append(1)
        return count(self)

    PushDown._counted_anew = noted  # type: ignore[method-assign]

    waiting, place = str(folder / "wait"), str(folder)

    def wait(values: pa.Array) -> pa.Array:
        Path(place, f"waits-{os.getpid()}").touch()
        while os.path.exists(waiting):
            time.sleep(0.05)
        return values

    patient = ms.ScalarFunction("patient", wait, pa.int64())

    spark = spark_session(master, **SHORT_LIVED, **{"spark.driver.memory": "1g", ALL_ATTEMPTS: all_attempts})
    with ms.Session(
        spark, checkpoint=str(folder / "checkpoint"), slots=2, small_batches=0, functions=[patient]
    ) as session:
        files = spark.readStream.schema("k BIGINT, v BIGINT, ts BIGINT").parquet(str(folder / "A"))
        session.stream("A", files, time="ts")
        query = session.query("q", "SELECT k, patient(v) AS v FROM A [NOW] WHERE v > 40")
        session.process_available()
        session.finish()
        print(
            json.dumps({"rows": query.statistics["rows"]["A"], "results": query.table().num_rows, "anew": bool(anew)})
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
