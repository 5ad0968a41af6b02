"""The papers whose experiments are rerun; an experiment's name begins with its paper's key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Paper:
    """A paper by the short name that the documentation uses."""

    key: str
    name: str
    title: str


PAPERS = (
    Paper(
        "cape",
        "CAPE",
        "Zhu, Rundensteiner and Heineman: Dynamic Plan Migration for Continuous Queries over Data Streams",
    ),
    Paper(
        "genmig",
        "GenMig",
        "Krämer, Yang, Cammert, Seeger and Papadias: Dynamic Plan Migration for Snapshot-Equivalent Continuous "
        "Queries in Data Stream Systems",
    ),
    Paper(
        "mill",
        "Stream Mill",
        "Bai, Thakkar, Wang and Zaniolo: A Flexible Query Graph Based Model for the Efficient Execution of Continuous "
        "Queries",
    ),
    Paper(
        "dcape",
        "D-CAPE",
        "Zhu and Rundensteiner: Adapting Partitioned Continuous Query Processing in Distributed Systems",
    ),
    Paper("nos", "Tran and Lee", "Tran and Lee: Distributed Adaptive Windowed Stream Join Processing"),
)


def paper_of(experiment: str) -> Paper:
    """The paper of an experiment."""
    return next(paper for paper in PAPERS if paper.key == experiment.partition("-")[0])
