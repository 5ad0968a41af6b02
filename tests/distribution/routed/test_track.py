from __future__ import annotations

import json
from random import Random

import pytest

from midstream.lab.papers.node_operator_sets.node_sets import Update
from midstream.lab.papers.node_operator_sets.track import (
    Drained,
    Full,
    GiveUp,
    GlobalReady,
    LocalReady,
    Prepare,
    Share,
    Tick,
    Track,
    TrackEvent,
    step,
)
from midstream.lab.papers.node_operator_sets.wire import from_json, to_json

PATIENCE = 50.0
OLD, NEW = Share(frozenset({Update("A")})), Share(frozenset({Update("B")}))


def nodes(count):
    return {f"N{i}": Track(f"N{i}", 0, {0: OLD}) for i in range(count)}


class Members:
    """Members whose messages are lost, repeated and reordered; a crash loses all but what was written down."""

    def __init__(self, random: Random, count: int, loss: float) -> None:
        self.random, self.loss = random, loss
        self.tracks = nodes(count)
        self.down: set[str] = set()
        self.flying: list = []
        self.now = 0.0
        self.sent = 0

    def take(self, node: str, event) -> None:
        if node in self.down:
            return
        self.tracks[node], sent = step(self.tracks[node], event, PATIENCE)
        self.sent += len(sent)
        for message in sent:
            copies = 0 if self.random.random() < self.loss else 1 + (self.random.random() < self.loss)
            self.flying += [message] * copies

    def crash(self, crashed: set[str]) -> None:
        self.down = crashed
        for node in crashed:
            self.tracks[node] = from_json(json.loads(json.dumps(to_json(self.tracks[node]))))

    def go(self, moves: int, full: dict[str, float]) -> None:
        for _ in range(moves):
            if self.flying and self.random.random() < 0.8:
                message = self.flying.pop(self.random.randrange(len(self.flying)))
                self.take(message.to, message)
                continue
            self.now += self.random.choice([1, 5])
            for node in self.tracks:
                self.take(node, Tick(self.now))
                if self.now >= full[node]:
                    self.take(node, Full(1))

    def ends(self) -> set[bool | None]:
        return {track.ended.get(1) for track in self.tracks.values()}


def test_without_faults_two_phases_take_2n_times_n_minus_1_messages():
    for count in (2, 4, 8):
        members = Members(Random(count), count, loss=0)
        everyone = tuple(members.tracks)
        for node in everyone:
            members.take(node, Prepare(node, 1, 1, everyone, NEW))
        for node in everyone:
            members.take(node, Full(1))
        while members.flying:
            message = members.flying.pop(members.random.randrange(len(members.flying)))
            members.take(message.to, message)
        assert members.ends() == {True}
        assert members.sent == 2 * count * (count - 1)
        assert {track.epoch for track in members.tracks.values()} == {1}


@pytest.mark.parametrize("block", range(4))
def test_members_end_in_one_plan_whatever_is_lost_and_whoever_crashes(block):
    random, seen = Random(block), set()
    for _ in range(50):
        members = Members(random, random.randint(2, 5), random.choice([0, 0.1, 0.3]))
        everyone = tuple(members.tracks)
        for node in everyone:
            if random.random() < 0.9:
                members.flying.append(Prepare(node, 1, 1, everyone, NEW))
        full = {node: random.choice([0.0, 10.0, 30.0, 80.0]) for node in everyone}
        for _ in range(4):
            members.crash({node for node in everyone if random.random() < 0.15})
            members.go(30, full)
            switched = {n for n, t in members.tracks.items() if t.ended.get(1) is True}
            failed = {n for n, t in members.tracks.items() if t.ended.get(1) is False}
            assert not (switched and failed), "one member switched, another gave up"
        members.down, members.loss = set(), 0.0
        members.go(300, full)
        known = {end for end in members.ends() if end is not None}
        assert len(known) <= 1
        for track in members.tracks.values():
            assert track.move is None
            assert track.epoch == (1 if known == {True} else 0)
            assert set(track.shares) == ({0, 1} if known == {True} else {0})
        seen |= known
    assert seen == {True, False}, "some runs complete and some are given up"


def test_a_member_that_is_global_ready_does_not_give_up_by_itself():
    track = nodes(2)["N0"]
    events: list[TrackEvent] = [
        Prepare("N0", 1, 1, ("N0", "N1"), NEW),
        Full(1),
        LocalReady("N0", 1, "N1"),
        Tick(10_000),
    ]
    for event in events:
        track, sent = step(track, event, PATIENCE)
    assert track.move is not None and sent == (GlobalReady("N1", 1, "N0", asks=True),)
    track, _ = step(track, GlobalReady("N0", 1, "N1"), PATIENCE)
    assert track.move is None and track.epoch == 1


def test_word_that_comes_before_the_change_counts():
    track = nodes(2)["N0"]
    for event in (GlobalReady("N0", 1, "N1"), Prepare("N0", 1, 1, ("N0", "N1"), NEW), Full(1)):
        track, sent = step(track, event, PATIENCE)
    assert track.epoch == 1 and sent == (LocalReady("N1", 1, "N0"), GlobalReady("N1", 1, "N0"))


def test_who_has_given_up_says_so_when_asked():
    track, _ = step(nodes(2)["N0"], GiveUp("N0", 1, "N1"), PATIENCE)
    assert step(track, LocalReady("N0", 1, "N1"), PATIENCE)[1] == (GiveUp("N1", 1, "N0"),)
    assert step(track, Prepare("N0", 1, 1, ("N0", "N1"), NEW), PATIENCE)[0].move is None


def test_a_later_change_tells_how_the_one_before_ended():
    track = nodes(3)["N0"]
    both = ("N0", "N1")
    for event in (Prepare("N0", 1, 1, both, NEW), Full(1), LocalReady("N0", 1, "N1")):
        track, _ = step(track, event, PATIENCE)
    committed, _ = step(track, Prepare("N0", 2, 2, both, OLD), PATIENCE)
    assert committed.epoch == 1 and committed.ended[1] and committed.move is not None
    failed, _ = step(track, Prepare("N0", 2, 1, both, OLD), PATIENCE)
    assert failed.epoch == 0 and not failed.ended[1] and failed.shares[1] == OLD


def test_old_shares_go_when_their_plans_have_drained():
    track = Track("N0", 3, {0: OLD, 2: NEW, 3: OLD})
    assert set(step(track, Drained(2), PATIENCE)[0].shares) == {2, 3}
    assert set(step(track, Drained(3), PATIENCE)[0].shares) == {3}
    # A node that took no part in the changes to 1 and 2 still works by its first share.
    assert set(step(Track("N0", 2, {0: OLD}), Drained(2), PATIENCE)[0].shares) == {0}
