"""Edits of queries as people make them: most are complete at once where rows are retained, and the others say when."""

from __future__ import annotations

import pytest

from midstream.lab.bench.evolution import _complete_and_at_once, corpus, edited


def test_the_corpus_has_two_hundred_different_edits():
    queries = corpus()["queries"].values()
    texts = {edited(query["cql"], edit) for query in queries for edit in query["edits"]}
    assert len(queries) == 20 and len(texts) == 200 and not texts & {query["cql"] for query in queries}


@pytest.mark.slow
def test_four_of_five_edits_are_complete_at_once():
    found = list(_complete_and_at_once(retained=True))
    assert sum(at_once for _, at_once in found) >= 0.8 * len(found) == 160
    assert sum(whole for whole, _ in found) >= 190  # the others run beside the old text first
