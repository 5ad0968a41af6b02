"""Processes without threads: what is begun beside the caller is done at once, or as late as can be."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from midstream.checkpoint.process import Process


class AtOnce(Process):
    """A process without threads: what is begun is done."""

    def begin(self, action: Any, *arguments: Any) -> Future[None]:
        future: Future[None] = Future()
        try:
            future.set_result(action(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future

    def aside(self, action: Any, name: str) -> Future[None]:
        return self.begin(action)


class Late(Future[None]):
    """Something that is done when it is waited for."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.action = action

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if not self.done():
            try:
                self.set_result(self.action())
            except Exception as error:
                self.set_exception(error)
        return super().exception()


class AtLast(Process):
    """A process whose threads come to nothing until they are waited for."""

    def begin(self, action: Any, *arguments: Any) -> Future[None]:
        return Late(partial(action, *arguments))

    def aside(self, action: Any, name: str) -> Future[None]:
        return Late(action)
