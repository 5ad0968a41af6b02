"""What is no failure and shall not look like one: a batch that is put off because the session is being stopped.

Spark can be kept from a batch only by an error in it. The batch is repeated when a session goes on, so nobody needs to
read of that error, which the bridge between Python and Java would print with all its places.
"""

from __future__ import annotations

import logging

from midstream.job.driver import PutOff

BRIDGE = ("py4j.clientserver", "py4j.java_gateway")


class _NotPutOff(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], PutOff)


def keep_quiet() -> None:
    """Has the bridge say nothing of batches that are put off."""
    for name in BRIDGE:
        logger = logging.getLogger(name)
        if not any(isinstance(known, _NotPutOff) for known in logger.filters):
            logger.addFilter(_NotPutOff())
