"""Links between sites as they are written, and what transfers take on them."""

from __future__ import annotations

import pytest

from midstream.errors import QueryError
from midstream.optimizer.sites.links import Link, changes, link_texts, links_from_json, links_of, links_to_json
from midstream.optimizer.sites.topology import Travelling, topology_of

SITES = ("eu", "us")


def test_a_link_is_a_latency_and_a_rate_one_way_or_both():
    found = links_of({"eu -> us": "80 ms, 10 MB/s", "us->eu": "0.5 s , 800 kbps"}, SITES)
    assert found == {("eu", "us"): Link(0.08, 1e7), ("us", "eu"): Link(0.5, 1e5)}
    assert links_of({"eu <-> us": "5ms, 1 GB/s"}, SITES) == {(a, b): Link(0.005, 1e9) for a, b in (SITES, SITES[::-1])}
    assert links_from_json(links_to_json(found)) == found


@pytest.mark.parametrize(
    ("links", "words", "at"),
    [
        ({"eu -> asia": "1 ms, 1 MB/s"}, "names the site 'asia', which is not declared", "asia"),
        ({"eu -> us": "-1 ms, 1 MB/s"}, "a latency cannot be negative", "-1 ms"),
        ({"eu -> us": "1 ms, 0 MB/s"}, "a rate must be above zero", "0 MB/s"),
        ({"eu <-> us": "1 ms, 1 MB/s", "us -> eu": "2 ms, 1 MB/s"}, "us -> eu is declared twice", "us -> eu"),
        ({"eu -> us": "1 ms, 1 MB/h"}, "a rate has no unit MB/h", "MB/h"),
        ({"eu -> us": "1 ms"}, "with a comma between", ""),
        ({"eu -> us": "1 ms, 1 MB/s, 3"}, "nothing else", ", 3"),
        ({"eu -> us": "soon, 1 MB/s"}, "a latency is a number and a unit", "soon"),
        ({"eu us": "1 ms, 1 MB/s"}, "leads from one site to another", "eu us"),
        ({"eu -> eu": "1 ms, 1 MB/s"}, "leads to another site than eu", "eu:"),
        ({"eu -> us": "1e999 ms, 1 MB/s"}, "1e999 is no number", "1e999"),
    ],
)
def test_what_is_no_link_is_refused_at_the_place(links, words, at):
    with pytest.raises(QueryError, match=words) as refused:
        links_of(links, SITES)
    lines = str(refused.value).split("\n")
    line, caret = next((a, b) for a, b in zip(lines, lines[1:], strict=False) if b.strip() == "^")
    assert line[caret.index("^") :].startswith(at)


def test_links_that_are_no_texts_are_refused():
    for wrong in ([("eu", "us")], {"eu -> us": 3}):
        with pytest.raises(QueryError, match="text"):
            links_of(wrong, SITES)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="declared twice"):
        link_texts(["eu -> us: 1 ms, 1 MB/s", "eu -> us: 2 ms, 1 MB/s"])
    with pytest.raises(QueryError, match="what sending takes"):
        link_texts(["eu -> us"])


def test_changes_name_each_link_that_is_another_one():
    before, after = {("eu", "us"): Link(0.08, 1e7)}, {("eu", "us"): Link(0.08, 1e6), ("us", "eu"): Link(1.0, 1e6)}
    assert changes(before, after) == [
        "the link from eu to us went from 80 ms, 10 MB/s to 80 ms, 1 MB/s",
        "the link from us to eu went from nothing to 1 s, 1 MB/s",
    ]


def test_transfers_pay_a_latency_for_each_exchange_and_their_bytes_by_the_rate():
    """A third of what lies by key is at us: 300 bytes a tick from eu send 100 there, in two exchanges."""
    topology = topology_of({"eu": [0, 1], "us": [2]}, 3, links_of({"eu -> us": "2 s, 50 B/s"}, SITES))
    travelling = Travelling(topology)
    for exchange in (0, 1):
        travelling.send(exchange, topology.home("eu"), topology.home(None), 150.0)
    travelling.send(0, topology.home("us"), topology.home("us"), 70.0)
    found = travelling.transfers
    assert topology.seconds(found, batch_ticks=10.0) == pytest.approx(2 * 2 / 10 + 100 / 50)
    assert topology.by_name(found) == {("eu", "us"): pytest.approx(100.0), ("eu", "eu"): pytest.approx(100.0)}


def test_what_goes_to_every_slot_goes_there_once_each():
    topology = topology_of({"eu": [0, 1], "us": [2]}, 4)
    travelling = Travelling(topology)
    travelling.send_everywhere(0, topology.home("us"), 10.0)
    assert topology.by_name(travelling.transfers) == {("us", "eu"): 20.0, ("us", ""): 10.0}
