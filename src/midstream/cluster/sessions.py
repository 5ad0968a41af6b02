"""The kinds of sessions: the arguments of `Session` say which is opened."""

from __future__ import annotations

from typing import Any

from midstream.cluster.any_session import Session
from midstream.errors import InputError

__all__ = ["Session"]


def _kind_of(spark: Any, checkpoint: Any, on: object) -> type[Session]:
    if spark is None and checkpoint is None and on in (None, "local"):
        from midstream.cluster.local.embedded_session import EmbeddedSession

        return EmbeddedSession
    if checkpoint is None:
        raise InputError("a session on Spark needs a checkpoint", hint='Session(spark, checkpoint="path")')
    from midstream.cluster.checkpoint_session import CheckpointSession

    return CheckpointSession


Session._kind_of = staticmethod(_kind_of)
