"""The dashboard in a real browser: it follows a job, acts only when allowed, and never runs what data or names say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.dashboard.jobs import NEW, OLD, batches, shop, with_large_counts, with_long_history, with_wide_plan
from tests.job.served import Served
from tests.job.test_faults import BAD, CAST, CATALOG, GOOD, LATER
from tests.local.test_trying import worked

import midstream as ms
from midstream.api import ask
from midstream.checkpoint.lease import Heartbeat
from midstream.checkpoint.stops import RunStop, record_error
from midstream.interface.dashboard.export import exported
from midstream.interface.dashboard.serving import served

HOSTILE = '<img src=x onerror="window.hacked=1"></script><script>window.hacked=1</script>'


CUT = """[...document.querySelectorAll(".stat, .stat dd, .card, .table-wrap, td, .alerts li")]
.filter(each => each.scrollWidth > each.clientWidth + 1).map(each => each.outerHTML.slice(0, 300))"""
"""What is wider than its place."""

SHIFTS = """
window.shifted = 0;
new PerformanceObserver(list => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({type: "layout-shift", buffered: true});
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Served, list[Any]]]:
    """A job that has done six batches and answers requests, and the batches that come next."""
    job, parts = shop(tmp_path / "orders.checkpoint"), batches()
    for part in parts[:6]:
        job.batch(part)
    with job.serving():
        yield job, parts[6:]


def expect(locator: Any) -> Any:
    from playwright.sync_api import expect as expecting

    return expecting(locator)


def migrate(job: Served, plan: str, strategy: str) -> None:
    job.answer({"command": "migrate", "query": "matches", "plan": plan, "strategy": strategy, "part": "auto"})


def go(page: Any, place: str) -> None:
    page.goto(page.url.partition("#")[0] + f"#/{place}")


def test_every_view_shows_the_job(running, dashboard, open_page, shot):
    job, parts = running
    with dashboard(job.folder) as link:
        page = open_page(link)
        assert "token" not in page.url
        expect(page.get_by_role("heading", name="Queries")).to_be_visible()
        expect(page.get_by_role("banner")).to_contain_text("running")
        views = page.get_by_role("navigation", name="Views").get_by_role("link")
        assert views.count() == 12
        for i in range(12):
            views.nth(i).click()
            expect(page.get_by_role("main").locator("section.card").first).to_be_visible()
            title = views.nth(i).inner_text().split("\n")[0].strip()
            expect(page.get_by_role("main").get_by_role("heading", level=1)).to_have_text(re.sub(r"\d+$", "", title))
        for landmark in ("banner", "main", "contentinfo"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        page.keyboard.press("2")
        expect(page).to_have_title(re.compile("^Results"))


def test_a_migration_is_followed_from_its_beginning_to_its_end(running, dashboard, open_page, shot):
    job, parts = running
    with dashboard(job.folder) as link:
        page = open_page(link)
        go(page, "migration/matches")
        expect(page.get_by_text("has run by one plan so far")).to_be_visible()
        migrate(job, NEW, "genmig")
        for part in parts[:3]:
            job.batch(part)
        expect(page.get_by_role("heading", name="matches is changing its plan")).to_be_visible()
        bar = page.get_by_role("progressbar", name="Split time approaching")
        expect(page.get_by_role("banner")).to_contain_text("batch 8")
        before = bar.get_attribute("aria-valuenow")
        expect(page.get_by_label("The old plan", exact=True)).to_contain_text(OLD)
        expect(page.get_by_label("The new plan", exact=True)).to_contain_text(NEW)
        assert page.locator(".side.old .node.shared").count() == page.locator(".side.new .node.shared").count() == 6
        assert page.locator(".side.old .node.old").count() == page.locator(".side.new .node.new").count() == 1
        expect(page.get_by_role("table").filter(has_text="Longest silence")).to_contain_text("Forecast")
        shot(page, "migration")
        job.batch(parts[3])
        expect(bar).not_to_have_attribute("aria-valuenow", before)
        for part in parts[4:16]:
            job.batch(part)
        assert job.driver.queries["matches"].migration is None
        expect(page.get_by_role("heading", name="Last migration of matches")).to_be_visible()
        expect(page.get_by_role("region", name="Migrations so far")).to_contain_text("genmig")
        go(page, "overview")
        expect(page.get_by_role("region", name="Queries")).to_contain_text(NEW)
        go(page, "time")
        expect(page.get_by_role("region", name="Marks")).to_contain_text("migration")
        expect(page.locator(".plot canvas")).to_have_count(7)
        shot(page, "time")
        go(page, "plan/matches?metric=state")
        expect(page.locator(".node")).to_have_count(7)
        shot(page, "plan")
        go(page, "overview")
        shot(page, "overview")


@pytest.mark.slow
def test_nothing_on_the_page_jumps_while_it_follows_a_job(running, dashboard, open_page):
    job, parts = running
    with dashboard(job.folder) as link:
        page = open_page("about:blank")
        page.add_init_script(SHIFTS)
        page.goto(link)
        for i, view in enumerate(("overview", "plan/matches", "time", "waits/matches")):
            go(page, view)
            expect(page.locator("section.card").first).to_be_visible()
            page.evaluate("window.shifted = 0")
            for j in (2 * i, 2 * i + 1):
                job.batch(parts[j])
                expect(page.get_by_role("banner")).to_contain_text(f"batch {6 + j}")
            assert page.evaluate("window.shifted") < 0.02, view


def test_an_action_is_shown_first_and_carried_out_when_confirmed(running, dashboard, open_page, shot):
    job, parts = running
    with dashboard(job.folder) as link:
        page = open_page(link, expected="422")
        go(page, "actions/matches?do=migrate")
        form = page.locator("form")
        form.get_by_label(re.compile("^Plan")).select_option(NEW)
        form.get_by_role("button", name="Show what it would do").click()
        told = page.get_by_role("group", name="What each strategy would take")
        expect(told).to_contain_text("genmig")
        expect(told).to_contain_text("auto chooses")
        expect(told).to_contain_text("a model's, not measured in this job yet")
        expect(told.get_by_role("row").filter(has_text="genmig").first).to_contain_text(re.compile(r"\d to \d"))
        assert job.driver.queries["matches"].migration is None
        shot(page, "action")
        form.get_by_label("Strategy").select_option("genmig")
        form.get_by_role("button", name="Show what it would do").click()
        form.get_by_role("button", name="Migrate now").click()
        expect(page.get_by_text("Done: the next batch shows it.")).to_be_visible()
        job.batch(parts[0])
        assert ms.open(job.folder).query("matches").migration is not None
        expect(page.get_by_role("banner")).to_contain_text("migrating")
        go(page, "actions/matches?do=add")
        form.get_by_label("Name").fill("wrong")
        form.get_by_label("CQL").fill("SELECT id, nothing FROM orders [NOW]")
        form.get_by_role("button", name="Show what it would do").click()
        fault = page.get_by_role("alert")
        expect(fault).to_contain_text("unknown column nothing")
        assert fault.locator("pre").first.inner_text().split("\n")[1].index("^") == 2 + len("SELECT id, ")
        go(page, "actions/matches?do=rescale")
        form.get_by_label("Slots").fill("5")
        form.get_by_role("button", name="Show what it would do").click()
        expect(page.get_by_text("groups would move")).to_be_visible()
        go(page, "history?kind=request")
        expect(page.get_by_role("main")).to_contain_text("migrate done")


def test_a_move_is_shown_while_it_goes_on_and_cancelled_from_the_page(running, dashboard, open_page):
    job, parts = running
    wanted = [(slot + 1) % 3 if group < 20 else slot for group, slot in enumerate(job.manifest.slots.routing)]
    with dashboard(job.folder) as link:
        page = open_page(link)
        assert job.driver.rebalance(wanted, protocol="split_time_balancing")
        job.batch(parts[0])
        go(page, "slots")
        moving = page.locator("section.card", has=page.get_by_role("heading", name="Moving now"))
        expect(moving).to_contain_text("20 groups on the way to other slots by split_time_balancing since batch 6.")
        moving.get_by_role("link", name="Cancel").click()
        page.get_by_role("button", name="Show what it would do").click()
        expect(page.locator(".foretold")).to_have_text("20 groups would stay in their slots")
        page.get_by_role("button", name="Cancel a move now").click()
        expect(page.get_by_text("Done: the next batch shows it.")).to_be_visible()
        job.batch(parts[1])
        go(page, "slots")
        expect(page.get_by_role("heading", name="Moves")).to_be_visible()
        expect(page.get_by_role("heading", name="Moving now")).to_have_count(0)
    assert job.manifest.slots.doubled is None


def test_without_the_token_one_may_look_and_not_act(running, dashboard, open_page):
    job, _ = running
    with dashboard(job.folder) as link:
        page = open_page(link.partition("?")[0], expected="403")
        expect(page.get_by_role("heading", name="Queries")).to_be_visible()
        go(page, "actions/matches?do=stop")
        expect(page.get_by_text("open the link that the command has printed")).to_be_visible()
        expect(page.get_by_role("button", name="Show what it would do")).to_be_disabled()
        status = page.evaluate(
            """() => fetch("/api/ask", {method: "POST", headers: {"content-type": "application/json"},
            body: JSON.stringify({command: "stop", dry_run: false})}).then(answer => answer.status)"""
        )
        assert status == 403 and not job.stopping


def test_names_and_data_are_text_and_nothing_else(tmp_path, dashboard, open_page):
    stream = {"s": pa.table({"v": [HOSTILE] * 30, "ts": range(30)})}
    query = f"SELECT v FROM s [RANGE 5] WHERE v <> '{HOSTILE}'"
    job = Served(catalog=ask("SELECT v FROM s [RANGE 5]", stream).catalog, folder=tmp_path / "<b>job")
    job.add("q", query)
    job.add("all", "SELECT v FROM s [RANGE 5]")
    rows = stream["s"].to_batches()[0]
    for part in (rows.slice(10, 15), rows.slice(25), rows.slice(0, 5)):
        job.batch({"s": part})
    assert ms.open(job.folder).dead_letter_rows == 5
    with dashboard(job.folder) as link:
        page = open_page(link)
        go(page, "dead")
        expect(page.get_by_role("group", name="Samples of dead letters")).to_contain_text("<img src=x onerror=")
        go(page, "results/all")
        expect(page.get_by_role("group", name="Newest results of all")).to_contain_text("<img src=x onerror=")
        go(page, "plan/q?node=%3Cimg%20src=x%20onerror=alert(1)%3E&metric=%22%3E%3Cscript%3E")
        expect(page.get_by_role("heading", name="Plan of q")).to_be_visible()
        page.get_by_text("The query").click()
        expect(page.locator(".cql pre")).to_contain_text("<script>window.hacked=1")
        go(page, "%E0%A4%A/%3Cscript%3E?batch=%22x")
        expect(page.get_by_role("heading", name="Queries")).to_be_visible()
        for view in ("time", "slots", "waits/q", "decisions/q", "history", "actions/q"):
            go(page, view)
            expect(page.locator("section.card").first).to_be_visible()
        assert page.evaluate("window.hacked") is None and page.locator("main img").count() == 0
    saved = tmp_path / "saved.html"
    saved.write_text(exported(ms.open(job.folder)))
    page = open_page(saved.as_uri() + "#/results/all")
    expect(page.get_by_role("group", name="Newest results of all")).to_contain_text("<img src=x onerror=")
    go(page, "dead")
    expect(page.get_by_role("group", name="Samples of dead letters")).to_contain_text("<img src=x onerror=")
    assert page.evaluate("window.hacked") is None


def test_a_page_comes_back_by_itself_when_its_server_does(running, open_page):
    job, parts = running
    with served(str(job.folder), "127.0.0.1", 0) as (link, _):
        page = open_page(link, expected="ERR_")
        expect(page.get_by_role("banner")).to_contain_text("batch 5")
    port = int(re.search(r":(\d+)/", link)[1])  # type: ignore[index]
    expect(page.get_by_role("banner")).to_contain_text("reconnecting")
    job.batch(parts[0])
    with served(str(job.folder), "127.0.0.1", port):
        expect(page.get_by_role("banner")).to_contain_text("batch 6")
        expect(page.get_by_role("banner")).to_contain_text("running")


def test_the_slider_goes_back_and_the_address_names_the_place(running, dashboard, open_page):
    job, parts = running
    migrate(job, NEW, "moving_state")
    for part in parts[:3]:
        job.batch(part)
    with dashboard(job.folder) as link:
        page = open_page(link)
        go(page, "plan/matches")
        expect(page.locator("code.plan").first).to_have_text(NEW)
        page.get_by_role("slider", name="Batch").fill("3")
        expect(page.get_by_text("Batch 3, not now")).to_be_visible()
        expect(page.locator("code.plan").first).to_have_text(OLD)
        assert "batch=3" in page.url
        page.locator(".node").filter(has_text="Join").first.click()
        assert "node=" in page.url
        address = page.url
        again = open_page(address)
        expect(again.locator("code.plan").first).to_have_text(OLD)
        expect(again.locator(".node.chosen")).to_have_count(1)
        expect(again.get_by_role("heading", name="Join")).to_be_visible()
        page.get_by_role("button", name="Back to now").click()
        expect(page.locator("code.plan").first).to_have_text(NEW)


def test_an_export_opens_without_a_server(running, dashboard, open_page, tmp_path_factory):
    job, _ = running
    with dashboard(job.folder) as link:
        page = open_page(link)
        with page.expect_download() as download:
            page.get_by_role("link", name="Export").click()
        saved = tmp_path_factory.mktemp("export") / "job.html"
        download.value.save_as(saved)
    page = open_page(saved.as_uri())
    expect(page.get_by_role("banner")).to_contain_text("a saved page")
    go(page, "plan/matches")
    expect(page.locator(".node")).to_have_count(7)
    page.get_by_role("slider", name="Batch").fill("2")
    expect(page.get_by_text("Batch 2, not now")).to_be_visible()
    go(page, "time")
    expect(page.locator(".plot canvas")).to_have_count(7)


def test_a_phone_shows_all_of_it_without_scrolling_sideways(running, dashboard, open_page, shot):
    job, parts = running
    migrate(job, NEW, "genmig")
    job.batch(parts[0])
    phone = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "is_mobile": True, "has_touch": True}
    with dashboard(job.folder) as link:
        page = open_page(link, **phone, color_scheme="dark", reduced_motion="reduce")
        for view in (
            "overview",
            "results/matches",
            "plan/matches",
            "migration/matches",
            "time",
            "slots",
            "waits",
            "dead",
            "decisions/matches",
            "trial",
            "history",
            "actions",
        ):
            go(page, view)
            expect(page.locator("section.card").first).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
            assert page.evaluate(CUT) == [], view
        assert page.evaluate("getComputedStyle(document.querySelector('.top')).colorScheme") == "dark"
        go(page, "migration/matches")
        expect(page.locator(".flowing .busy").first).to_have_css("animation-name", "none")
        shot(page, "phone")


def test_a_long_reason_of_a_dead_letter_is_not_cut_on_a_phone(tmp_path, dashboard, open_page):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"ts": 1, "v": 1}\n{"ts": 2, "v": "a word where a number ought to be"}\n')
    with ms.Session(checkpoint=str(tmp_path / "checkpoint"), on="local") as session:
        session.open_stream("s", "json", path=str(tmp_path / "in"), schema="ts BIGINT, v BIGINT")
        session.query("q", "SELECT v FROM s [NOW]")
        session.process_available()
    with dashboard(tmp_path / "checkpoint") as link:
        page = open_page(link, viewport={"width": 390, "height": 844}, is_mobile=True)
        go(page, "dead")
        expect(page.get_by_role("group", name="Samples of dead letters")).to_contain_text("a number ought to be")
        assert page.evaluate(CUT) == []


def test_what_the_last_trial_has_found_is_a_page_of_its_own(tmp_path, dashboard, open_page):
    session = worked(tmp_path)
    session.try_({"counts": "SELECT k, COUNT(*) AS n FROM A [RANGE 10] WHERE k > 1 GROUP BY k"}, last=4, slots=1)
    session.stop()
    with dashboard(tmp_path / "c") as link:
        page = open_page(link, viewport={"width": 390, "height": 844}, is_mobile=True)
        go(page, "trial")
        expect(page.get_by_role("group", name="Times of a batch")).to_contain_text("kernel, a batch")
        expect(page.get_by_role("group", name="Figures of query join")).to_contain_text("Rows of state: forecast")
        main = page.get_by_role("main")
        expect(main).to_contain_text("snapshots differ first at 40")
        expect(main).to_contain_text('Only before the change: {"k":')
        assert page.evaluate(CUT) == [] and page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_keyboard_is_enough(running, dashboard, open_page):
    job, _ = running
    with dashboard(job.folder) as link:
        page = open_page(link)
        go(page, "plan/matches")
        expect(page.locator(".node").first).to_be_visible()
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.locator(".node").first.focus()
        page.keyboard.press("Enter")
        expect(page.locator(".node.chosen")).to_have_count(1)
        first = page.evaluate("document.activeElement.dataset.id")
        for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
            page.keyboard.press(key)
        assert page.evaluate("document.activeElement.dataset.id") is not None and first is not None
        unnamed = page.evaluate(
            """() => [...document.querySelectorAll("button, a, input, select, [role=button]")]
            .filter(e => !(e.ariaLabel || e.innerText?.trim() || e.labels?.length)).map(e => e.outerHTML)"""
        )
        assert unnamed == []


def longest_task(trace: bytes) -> float:
    """The most milliseconds of processor time that a task of the page's main thread took; other processes add none."""
    events = json.loads(trace)["traceEvents"]
    names = [e for e in events if e["name"] == "thread_name" and e["args"]["name"] == "CrRendererMain"]
    mains = {(e["pid"], e["tid"]) for e in names}
    tasks = [e.get("tdur", 0) for e in events if e["name"].endswith("RunTask") and (e["pid"], e["tid"]) in mains]
    return float(max(tasks)) / 1000


@pytest.mark.slow
def test_many_operators_and_much_history_leave_the_page_responsive(running, dashboard, open_page, browser):
    """Two hundred operators are folded at first and all can be seen; ten thousand batches can be wound back."""
    job, _ = running
    with_long_history(job.folder, 10_000)
    with_wide_plan(job.folder, 201)
    with dashboard(job.folder) as link:
        page = open_page("about:blank")
        browser.start_tracing(page=page, categories=["toplevel"])
        page.goto(link)
        go(page, "plan/matches")
        expect(page.locator(".node")).to_have_count(7)
        page.get_by_role("button", name="Show all 201").click()
        expect(page.locator(".node")).to_have_count(201)
        page.get_by_role("button", name="Fold").click()
        page.locator(".more").last.click()
        expect(page.get_by_role("button", name="Back to the result")).to_be_visible()
        go(page, "time")
        expect(page.get_by_text("The charts show 10 k batches")).to_be_visible()
        expect(page.locator(".plot canvas")).to_have_count(7)
        page.get_by_role("slider", name="Batch").fill("5000")
        expect(page.get_by_text("Batch 5001, not now")).to_be_visible()
        assert 1 < longest_task(browser.stop_tracing()) < 200


def test_a_query_that_a_value_stopped_is_shown_with_its_reason(tmp_path, dashboard, open_page):
    job = Served(catalog=CATALOG, folder=tmp_path)
    job.add("cast", CAST)
    for part in (*GOOD, BAD, LATER[0]):
        job.batch(part)
    with job.serving(), dashboard(job.folder) as link:
        page = open_page(link)
        page.get_by_role("link", name="cast takes in nothing").click()
        form = page.locator("form")
        form.get_by_role("button", name="Show what it would do").click()
        expect(page.get_by_text("would go on without the rows of 2 batches")).to_be_visible()
        form.get_by_role("button", name="Resume a query now").click()
        expect(page.get_by_text("Done: the next batch shows it.")).to_be_visible()
        job.batch(LATER[1])
        go(page, "history?kind=fault")
        expect(page.get_by_role("main")).to_contain_text("cast was resumed")
        expect(page.get_by_role("main")).to_contain_text("cannot cast 'abc' to int64")


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_large_figures_stay_within_their_cards(running, dashboard, open_page, width):
    job, _ = running
    with_large_counts(job.folder)
    with dashboard(job.folder) as link:
        page = open_page(link, viewport={"width": width, "height": 900})
        expect(page.get_by_text("late or unusable rows", exact=True)).to_be_visible()
        expect(page.locator("dl.stats")).to_contain_text("988 M")
        assert page.evaluate(CUT) == []
        for plan in page.get_by_role("region", name="Queries").locator("code.plan").all():
            assert plan.bounding_box()["height"] < 30, "a plan of one word stands in one line"


def test_results_are_shown_as_they_are_released(running, dashboard, open_page, shot):
    job, parts = running
    with dashboard(job.folder) as link:
        page = open_page(link)
        page.get_by_role("row", name=re.compile("^by-carrier")).first.get_by_role("link").last.click()
        shown = page.get_by_role("table")
        for part in (None, parts[0], parts[1]):
            if part is not None:
                job.batch(part)
            newest = ms.read_results(job.folder, "by-carrier").to_pylist()[-1]
            first = shown.get_by_role("row").nth(1)
            expect(first.get_by_role("cell").nth(2)).to_have_text(f"{newest['valid_from']:%Y-%m-%d %H:%M:%S.%f}")
        go(page, "results/matches")
        expect(page.get_by_role("columnheader").first).to_have_text("order_id")
        shot(page, "results")


def test_why_a_job_stopped_stands_above_every_view(tmp_path, dashboard, open_page):
    job = shop(tmp_path / "orders.checkpoint")
    for part in batches()[:3]:
        job.batch(part)
    error = ms.JobError("the folder <b>orders</b> is gone", detail="no such folder", hint="mount it again")
    record_error(job.driver.files, RunStop.by_error(error, 1_767_225_600.0, 2))
    with dashboard(job.folder) as link:
        page = open_page(link)
        for view in ("overview", "plan/matches", "history"):
            go(page, view)
            alert = page.get_by_role("list", name="Alerts").get_by_role("listitem").first
            expect(alert).to_contain_text("An error has stopped the job")
            for text in ("the folder <b>orders</b> is gone", "no such folder", "mount it again", "after batch 2"):
                expect(alert).to_contain_text(text)
        expect(page.get_by_role("banner")).to_contain_text("failed")
        go(page, "overview")
        expect(page.get_by_role("row", name=re.compile("^matches")).first).to_contain_text("failed")


def test_a_job_that_starts_is_not_called_stopped(tmp_path, dashboard, open_page):
    job = shop(tmp_path / "orders.checkpoint")
    lease = Heartbeat(job.driver.files)
    try:
        with dashboard(job.folder) as link:
            page = open_page(link)
            banner = page.get_by_role("banner")
            expect(banner).to_contain_text("starting")
            expect(page.get_by_text("The job starts. Its first batch will be shown here.")).to_be_visible()
            lease.work()
            expect(banner).to_contain_text("running")
            job.batch(batches()[0])
            expect(page.get_by_role("heading", name="Queries")).to_be_visible()
            expect(banner).to_contain_text("running")
            lease.stop()
            expect(banner).to_contain_text("stopped")
    finally:
        lease.stop()


def test_late_rows_and_waits_are_alerts_and_lead_to_their_views(running, dashboard, open_page):
    job, parts = running
    for part in parts[:4]:
        job.batch(part)
    for part in parts[4:10]:
        job.batch({name: rows for name, rows in part.items() if name != "shipments"})
    with dashboard(job.folder) as link:
        page = open_page(link)
        alerts = page.get_by_role("list", name="Alerts")
        expect(
            alerts.get_by_role("link", name="matches waits for stream shipments, silent for 6 batches")
        ).to_be_visible()
        alerts.get_by_role("link", name="payments had 1 late row in the last 16 batches").click()
        expect(page.get_by_role("group", name="Samples of dead letters")).to_contain_text("payments")


def test_what_a_sink_is_owed_is_an_alert_until_it_has_had_it(tmp_path, dashboard, open_page):
    def push(*ticks: int, sinks: bool) -> None:
        with ms.Session(checkpoint=str(tmp_path), on="local") as session:
            session.stream("A", pa.schema([("ts", pa.int64())]))
            session.query("q", "SELECT ts FROM A [NOW]")
            if sinks:
                session.sink("q", lambda results, batch_id: None)
            session.start()
            for tick in ticks:
                session.push("A", pa.table({"ts": [tick]}))

    push(1, 2, sinks=True)
    push(3, 4, 5, sinks=False)
    with dashboard(tmp_path) as link:
        page = open_page(link)
        alerts = page.get_by_role("list", name="Alerts")
        expect(alerts).to_contain_text("Sink function of q is owed 3 results, those that start at 2 or later")
        push(sinks=True)
        push(6, sinks=True)
        expect(alerts).to_be_hidden()
