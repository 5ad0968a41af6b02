"""The dashboard beside a job on Spark: a migration that is asked for on the page is followed on it to its end."""

from __future__ import annotations

import re
from pathlib import Path
from threading import Thread

import pytest
from tests.dashboard.test_page import expect, go
from tests.spark.feeding import Feed

import midstream as ms

pytestmark = [pytest.mark.spark, pytest.mark.slow]

JOIN = "SELECT A.v AS a, C.v AS c FROM A [RANGE 40], B [RANGE 40], C [RANGE 40] WHERE A.k = B.k AND B.k = C.k"


def feed(feeds: dict[str, Feed], batch: int) -> None:
    for each in feeds.values():
        each.rows(*((i % 4, i, 10 * batch + i) for i in range(10)))


def test_a_migration_asked_for_on_the_page_is_followed_to_its_end(tmp_path: Path, dashboard, open_page):
    from midstream.cluster.spark import spark_session

    spark = spark_session("local[2]", name="dashboard", **{"spark.sql.shuffle.partitions": "2"})
    feeds = {name: Feed(tmp_path / name) for name in "ABC"}
    checkpoint = tmp_path / "checkpoint"
    feed(feeds, 0)
    with ms.Session(spark, checkpoint=checkpoint, slots=2) as session:
        for name, each in feeds.items():
            session.stream(name, each.frame(spark), time="ts")
        query = session.query("q", JOIN, plan="((A B) C)", adaptive="suggest")
        session.start()
        waiting = Thread(target=session.wait, daemon=True)
        waiting.start()
        with dashboard(checkpoint) as link:
            page = open_page(link)
            page.set_default_timeout(90_000)
            go(page, "actions/q?do=migrate")
            form = page.locator("form")
            form.get_by_label(re.compile("^Plan")).select_option("(A (B C))", timeout=90_000)
            form.get_by_label("Strategy").select_option("genmig")
            form.get_by_role("button", name="Show what it would do").click()
            form.get_by_role("button", name="Migrate now").click()
            page.get_by_text("Done: the next batch shows it.").wait_for()
            go(page, "migration/q")
            feed(feeds, 1)
            page.get_by_role("progressbar", name="Split time approaching").wait_for()
            for batch in range(2, 12):
                feed(feeds, batch)
            page.get_by_role("heading", name="Last migration of q").wait_for()
            assert query.plan.text == "(A (B C))"
            go(page, "actions/q?do=stop")
            form.get_by_role("button", name="Show what it would do").click()
            form.get_by_role("button", name="Stop now").click()
            waiting.join(60)
            assert not waiting.is_alive()
            expect(page.get_by_role("banner")).to_contain_text("stopped", timeout=30_000)
    assert ms.read_results(checkpoint, "q").num_rows > 0
