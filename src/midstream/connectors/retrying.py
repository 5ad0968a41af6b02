"""What fails outside of a job may work a moment later: it is tried again, with pauses that grow."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from midstream.checkpoint.failures import StorageFailure
from midstream.connectors.environment import hidden
from midstream.errors import JobError, MidstreamError

log = logging.getLogger(__name__)

PAUSES: Sequence[float] = (0.1, 0.3, 1.0, 3.0)
"""How many seconds pass before each repeat; after the last one, what is wrong is said."""

Answer = TypeVar("Answer")


def retried(act: Callable[[], Answer], words: str, but: tuple[type[Exception], ...] = ()) -> Answer:
    """What something gives, tried again while it fails; errors that would come again are not."""
    for pause in PAUSES:
        try:
            return act()
        except Exception as error:
            if isinstance(error, (MidstreamError, *but)) and not isinstance(error, StorageFailure):
                raise
            log.warning("%s: %s; it is tried again in %g s", words, hidden(f"{error}".split("\n")[0]), pause)
            time.sleep(pause)
    return act()


def answered(
    act: Callable[[], Answer],
    words: str,
    but: tuple[type[Exception], ...] = (),
    failure: str | None = None,
    unsaid: tuple[type[Exception], ...] = (),
) -> Answer:
    """What something gives, tried again while it fails; what is wrong in the end is said, without any secrets.

    Errors among `but` would come again, and are not waited for; those that are `unsaid` stay as they are. The `failure`
    says it where other words do than while it is tried.
    """
    own: tuple[type[Exception], ...] = (MidstreamError, *unsaid)
    try:
        return retried(act, words, but)
    except own:
        raise
    except Exception as error:
        # Without its cause: messages and local variables of clients can hold passwords.
        raise JobError(failure or words, detail=hidden(f"{type(error).__name__}: {error}".strip())) from None
