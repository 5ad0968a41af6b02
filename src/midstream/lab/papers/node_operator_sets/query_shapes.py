"""Queries of the paper's experiments: between which of their streams conditions stand."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from midstream.optimizer.routed.conditions import RoutedConditions


def graph_of(streams: Iterable[str], pairs: Iterable[Collection[str]]) -> RoutedConditions:
    """Conditions between pairs of streams."""
    return RoutedConditions(tuple(streams), frozenset(frozenset(pair) for pair in pairs))


def chain(streams: Collection[str]) -> RoutedConditions:
    """Each stream is joined with the next."""
    names = list(streams)
    return graph_of(names, zip(names, names[1:], strict=False))


def star(streams: Collection[str]) -> RoutedConditions:
    """The first stream is joined with every other."""
    first, *others = streams
    return graph_of(streams, [(first, other) for other in others])


def cycle(streams: Collection[str]) -> RoutedConditions:
    """Each stream is joined with the next, the last with the first."""
    names = list(streams)
    return graph_of(names, zip(names, [*names[1:], names[0]], strict=True))


def clique(streams: Collection[str]) -> RoutedConditions:
    """Every stream is joined with every other."""
    names = list(streams)
    return graph_of(names, [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]])
