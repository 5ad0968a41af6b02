"""What the bridge between Python and Java need not print: errors in batches, with all their places.

What makes a batch fail is raised where the session is waited for. And Spark can be kept from a batch, while a session
is being stopped, only by an error in it, which is no failure at all.
"""

from __future__ import annotations

import logging
import os

from pyspark.sql import SparkSession

BRIDGE = ("py4j.clientserver", "py4j.java_gateway", "root")
"""Where the bridge logs; to the root logger, too, when Spark's process has gone."""

TRACEBACK = "MIDSTREAM_TRACEBACK"
"""Set, it has everything printed that happened."""


class _NoPlaces(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not record.exc_info or "py4j" not in record.pathname or bool(os.environ.get(TRACEBACK))


def keep_quiet(spark: SparkSession) -> None:
    """Silences the bridge about errors that are raised elsewhere."""
    server = getattr(spark.sparkContext, "_accumulatorServer", None)
    if server is not None and not os.environ.get(TRACEBACK):
        server.handle_error = lambda *_: None  # it would print that Spark's process has gone
    for name in BRIDGE:
        logger = logging.getLogger(None if name == "root" else name)
        if not any(isinstance(known, _NoPlaces) for known in logger.filters):
            logger.addFilter(_NoPlaces())
