"""A job that moves its state twice and then goes on with other slots: `python moving_process.py FOLDER MASTER`.

It leaves its results beside its inputs and says at the end what moved.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

SCHEMA = "k BIGINT, v BIGINT, ts BIGINT"
JOINED = "A [RANGE 20], B [RANGE 20], C [RANGE 20] WHERE A.k = B.k AND B.v = C.v"
QUERIES = {
    "joined": f"SELECT A.v AS a, B.k AS b, C.k AS c FROM {JOINED}",
    "grouped": f"SELECT C.k, count(*) AS n FROM {JOINED} GROUP BY C.k",
}
TURNED = [1 - group % 2 for group in range(256)]
"""Every other group in the other of two slots."""


def main(folder: Path, master: str) -> None:
    """Half of the input in two slots, with moves; the rest in three."""
    from tests.spark.settings import SHORT_LIVED

    import midstream as ms
    from midstream.cluster.spark import spark_session

    spark = spark_session(master, **SHORT_LIVED, **{"spark.driver.memory": "1g"})

    def opened(slots: int, parts: str) -> Any:
        session = ms.Session(spark, checkpoint=str(folder / "checkpoint"), slots=slots, small_batches=0)
        for name in "ABC":
            reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
            session.stream(name, reader.parquet(str(folder / name / parts)), time="ts")
        return session

    with opened(2, "00[0-5].parquet") as session:
        queries = {name: session.query(name, text, plan="((A B) C)") for name, text in QUERIES.items()}

        def move(batch_id: int) -> None:
            if batch_id == 2:
                assert session.rebalance(TURNED)
            if batch_id == 4:
                for query in queries.values():
                    query.migrate("(A (B C))", "moving_state")

        session.before_batch(move)
        session.process_available()
    with opened(3, "*.parquet") as session:
        queries = {name: session.query(name, text) for name, text in QUERIES.items()}
        session.process_available()
        session.finish()
        for name, query in queries.items():
            pq.write_table(query.table(), folder / f"{name}.parquet")
        told = {name: [r.strategy for r in query.history] for name, query in queries.items()}
        plans = {name: query.plan.text for name, query in queries.items()}
        print(json.dumps({"moves": session.moves, "migrations": told, "plans": plans}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
