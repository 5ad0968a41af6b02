"""A job in a process of its own, to be killed: `python job_process.py FOLDER MASTER`; prints its results at the end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

SCHEMA = "k BIGINT, v BIGINT, ts BIGINT"
QUERY = (
    "SELECT A.v AS a, B.v AS b, C.v AS c FROM A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
)
STAGES = "SELECT A.v, count(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY A.v"


def main(folder: Path, master: str) -> None:
    """Runs the job to its end, wherever it had been."""
    import midstream as ms
    from midstream.runtime.spark import spark_session

    spark = spark_session(master, **{"spark.driver.memory": "1g"})
    with ms.Session(spark, checkpoint=str(folder / "checkpoint"), slots=2) as session:
        for name in "ABC":
            files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
            session.stream(name, files, time="ts")
        joined = session.query(
            "joined", QUERY, plan=None if (folder / "checkpoint" / "manifests").exists() else "((A B) C)"
        )
        grouped = session.query("grouped", STAGES)

        def migrate(batch_id: int) -> None:
            if batch_id >= 2 and joined.plan.text == "((A B) C)" and joined.migrating is None:
                joined.migrate("(A (B C))", "genmig")

        session.before_batch(migrate)
        session.process_available()
        session.finish()
        for query in (joined, grouped):
            pq.write_table(query.table(), folder / f"{query.name}.parquet")
        print(json.dumps({"plan": joined.plan.text}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
