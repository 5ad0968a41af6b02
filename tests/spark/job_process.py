"""A job in a process of its own, to be killed: `python job_process.py FOLDER MASTER [STRATEGY]`.

It leaves its results beside its inputs and says at the end which plan it ran by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

SCHEMA = "k BIGINT, v BIGINT, ts BIGINT"
JOINED = "A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.k = C.k"
QUERIES = {
    "joined": f"SELECT A.v AS a, B.v AS b, C.v AS c FROM {JOINED}",
    "grouped": "SELECT A.v, count(*) AS n FROM A [RANGE 20], B [RANGE 20] WHERE A.k = B.k GROUP BY A.v",
    "outer": "SELECT A.v AS a, B.v AS b FROM A [RANGE 10] LEFT JOIN B [RANGE 5] ON A.k = B.k",
    "once": "SELECT DISTINCT v FROM A [RANGE 30]",
    "changes": "SELECT ISTREAM k, v FROM C [PARTITION BY k ROWS 2]",
    "followed": "SELECT A.v AS a, C.v AS c FROM A FOLLOWED BY C CHRONICLE ON A.k = C.k WITHIN 9",
}


def run(spark: Any, folder: Path, strategy: str = "genmig") -> str:
    """Runs the job to its end, wherever it had been, and gives the plan that it ran by at last."""
    import midstream as ms

    resumed = (folder / "checkpoint" / "manifests").exists()
    with ms.Session(spark, checkpoint=str(folder / "checkpoint"), slots=2, small_batches=0) as session:
        for name in "ABC":
            files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(folder / name))
            session.stream(name, files, time="ts")
        plans = {} if resumed else {"joined": "((A B) C)"}
        queries = {name: session.query(name, text, plan=plans.get(name)) for name, text in QUERIES.items()}
        joined = queries["joined"]

        def migrate(batch_id: int) -> None:
            if batch_id >= 2 and joined.plan.text == "((A B) C)" and joined.migrating is None:
                joined.migrate("(A (B C))", strategy)

        session.before_batch(migrate)
        session.process_available()
        session.finish()
        for name, query in queries.items():
            pq.write_table(query.table(), folder / f"{name}.parquet")
        return joined.plan.text


def main(folder: Path, master: str, strategy: str = "genmig") -> None:
    """Runs the job in a Spark of its own."""
    from tests.spark.settings import SHORT_LIVED

    from midstream.cluster.spark import spark_session

    spark = spark_session(master, **SHORT_LIVED, **{"spark.driver.memory": "1g"})
    print(json.dumps({"plan": run(spark, folder, strategy)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
