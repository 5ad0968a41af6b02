"""Keys that are pressed while a view is shown; the terminal is as before afterwards, however the view ends."""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Wait = Callable[[float], str]


@contextmanager
def pressed_keys() -> Iterator[Wait]:
    """A function that waits at most some seconds for a key and gives it, or nothing."""
    try:
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin)
    except Exception:  # no terminal to read keys from, or not a system that has them
        yield _sleep
        return
    tty.setcbreak(sys.stdin.fileno())
    try:
        yield _key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _key(patience: float) -> str:
    ready, _, _ = select.select([sys.stdin], [], [], patience)
    if not ready:
        return ""
    found = sys.stdin.read(1)
    return found or "q"  # the terminal has gone


def _sleep(patience: float) -> str:
    time.sleep(patience)
    return ""
