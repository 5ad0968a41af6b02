"""The job that is struck: `python -m midstream.lab.chaos.job FOLDER MASTER`.

It reads the folders of its streams until the file `end` is there, finishes then, and ends with 0. Everything else that
ends it is told on standard error in one line, as commands do.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from midstream.errors import MidstreamError

SCHEMA = "k BIGINT, v BIGINT, ts BIGINT"
SLOTS = 2


def main(folder: Path, master: str) -> None:
    """Runs the job, wherever it had been."""
    from midstream.cluster.checkpoint_session import CheckpointSession
    from midstream.cluster.spark import spark_session
    from midstream.lab.chaos.queries import QUERIES

    spark = spark_session(master, **{"spark.driver.memory": "1g"})
    texts = json.loads((folder / "texts.json").read_text())
    with CheckpointSession(
        spark, checkpoint=str(folder / "disk" / "checkpoint"), slots=None, small_batches=0
    ) as session:
        for name in "ABC":
            options = {"maxFilesPerTrigger": "2"}
            session.open_stream(name, "parquet", path=str(folder / name), schema=SCHEMA, options=options)
        for name, cql in texts.items():
            session.query(name, cql, replace=cql != QUERIES[name].cql)
        session.start()
        (folder / "started").touch()
        while not session.wait(0.2):
            if (folder / "end").exists():
                session.finish()
                break


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except MidstreamError as error:
        sys.exit(str(error))
