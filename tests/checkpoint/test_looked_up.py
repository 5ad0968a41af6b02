"""What one object takes long to look up holds no other one up."""

from __future__ import annotations

import threading

from midstream.checkpoint.looked_up import looked_up


class Thing:
    def __init__(self, waits_for: threading.Event | None = None) -> None:
        self.waits_for, self.begun, self.count = waits_for, threading.Event(), 0

    @looked_up
    def found(self) -> int:
        """How often it was looked for."""
        self.begun.set()
        if self.waits_for is not None:
            assert self.waits_for.wait(60)
        self.count += 1
        return self.count


def test_an_object_is_not_waited_for_by_another_one():
    go_on = threading.Event()
    slow, quick = Thing(go_on), Thing()
    thread = threading.Thread(target=lambda: slow.found, daemon=True)
    thread.start()
    assert slow.begun.wait(60) and quick.found == 1
    go_on.set()
    thread.join()
    assert slow.found == quick.found == slow.count == 1
    assert Thing.found.__doc__ == "How often it was looked for."
