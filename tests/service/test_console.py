"""The console in a real browser (Chromium, headless): each thing that a person does there."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest
from receivers import wait_until
from serving import JSON_LINES, Running, running

import dibs
from dibs.service.console.pages import FOLDER, files
from dibs.service.delivery.sending import Outcome, Sending

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
playwright = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser: pip install playwright")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium: apt-get install chromium"),
    pytest.mark.xdist_group("console"),
]
TALLEST = "found => Math.max(...found.map((one) => Number(one.getAttribute('height'))))"
NASTY = "<img src=x onerror=document.title='broken'>"
SUBSCRIPTIONS = [
    {"id": "cheap-phones", "expression": "category = 'phone' AND price <= 300", "owner": "anna"},
    {"id": "cheaper-phones", "expression": "category = 'phone' AND price <= 100"},
    {"id": "red-things", "expression": "color = 'red' AND (price < 200 OR category = 'watch')"},
    {"id": "nobody-sells-these", "expression": "brand = 'Nobody'"},
    {"id": 7, "expression": "category = 'watch'"},
    {"id": NASTY, "expression": "brand = '<b>bold</b>'"},
]


def some_events(count: int) -> list[dict[str, Any]]:
    draw = random.Random(3)
    return [
        {
            "category": draw.choice(["phone", "watch", "camera"]),
            "brand": draw.choice(["Acme", "Kuma", "O'Neil"]),
            "price": draw.randint(50, 600),
            "color": draw.choice(["red", "blue"]),
            "seller": {"rating": draw.randint(1, 5)},
        }
        for _ in range(count)
    ]


EVENTS = some_events(60)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with a few subscriptions and events, which asks for no token."""
    with running(tmp_path_factory.mktemp("console") / "searches", open=True, private_targets=True) as served:
        client = served.client(token="")
        lines = "\n".join(map(json.dumps, SUBSCRIPTIONS))
        client.post("/v1/subscriptions", content=lines, headers=JSON_LINES).raise_for_status()
        lines = "\n".join(map(json.dumps, EVENTS))
        client.post("/v1/publish", content=lines, headers=JSON_LINES).raise_for_status()
        yield served


@pytest.fixture
def api(shop: Running) -> httpx.Client:
    return shop.client(token="")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a view; at the end nothing may have gone wrong in it, nor have been asked of another host."""
    pages: list[Any] = []
    wrong: list[str] = []

    def opened(url: str, view: str = "write", **more: Any) -> Any:
        page = browser.new_page(**({"viewport": {"width": 1300, "height": 850}} | more))
        page.set_default_timeout(15_000)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: request.url.startswith(url) or wrong.append(request.url))
        page.goto(f"{url}/console#/{view}")
        pages.append(page)
        return page

    yield opened
    for page in pages:
        page.close()
    assert [text for text in wrong if "status of 4" not in text] == []


def write(page: Any, text: str) -> None:
    area = page.get_by_label("Expression", exact=True).and_(page.locator("textarea"))
    area.fill("")
    area.press_sequentially(text)


def expect(locator: Any) -> Any:
    return playwright.expect(locator)


# ---- writing ----


def test_mistakes_are_underlined_where_they_are(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    write(page, "price <= 5 AND colour ==")
    [problem] = dibs.validate("price <= 5 AND colour ==")
    expect(page.locator(".problems li")).to_contain_text(problem.message)
    expect(page.locator("textarea")).to_have_attribute("aria-invalid", "true")
    marked = "".join(page.locator(".bad-place").all_inner_texts())
    assert marked.strip() in problem.text[problem.start : problem.end + 1]
    page.locator(".problems button").click()
    assert page.evaluate("document.activeElement.selectionStart") == problem.start
    write(page, "😀 = 1 AND price <= 'x")  # a character that JavaScript counts as two
    expect(page.locator(".problems li").first).to_be_visible()
    write(page, "price <= 5")
    expect(page.locator(".bad-place")).to_have_count(0)
    expect(page.locator(".problems li")).to_have_count(0)


def test_attributes_and_values_are_completed_with_the_keyboard(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    write(page, "bra")
    options = page.locator(".completions").get_by_role("option")
    expect(options.first).to_contain_text("brand")
    page.keyboard.press("Tab")
    page.keyboard.type("= 'o")
    expect(options).to_have_count(1)
    page.keyboard.press("Enter")
    page.keyboard.type("AND category IN (")
    expect(options).to_have_count(3)
    page.keyboard.press("ArrowDown")
    second = options.nth(1).locator("span").first.inner_text()
    page.keyboard.press("Enter")
    text = page.locator("textarea").input_value()
    assert text == f"brand = 'O''Neil' AND category IN ({second} "
    page.keyboard.type(") AND seller.")
    expect(options.first).to_contain_text("seller.rating")
    page.keyboard.press("Escape")
    expect(options.first).to_be_hidden()


def test_functions_are_completed_and_say_how_they_are_called(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    options, hint = page.locator(".completions").get_by_role("option"), page.locator(".hint")
    write(page, "substr")
    expect(options.filter(has_text="substring(")).to_contain_text("(string, number[, number])")
    page.keyboard.press("Tab")
    page.keyboard.type("bra")
    expect(hint).to_contain_text("SUBSTR(string, number[, number])")
    page.keyboard.press("Tab")
    page.keyboard.type(", 1, length(ti")
    expect(hint).to_contain_text("how many characters")
    page.keyboard.type("tle)) = up")
    expect(options.first).to_contain_text("upper(")
    expect(hint).to_be_empty()
    page.keyboard.press("Tab")
    page.keyboard.type("brand)")
    assert page.locator("textarea").input_value() == "substr(brand , 1, length(title)) = upper(brand)"
    expect(page.locator(".problems li")).to_have_count(0)


def test_what_was_hardly_meant_is_told(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    write(page, "price > 5 AND price < 3")
    expect(page.locator(".problems .warning")).to_contain_text("is never TRUE")
    expect(page.locator("textarea")).to_have_attribute("aria-invalid", "false")
    write(page, "price > 5")
    expect(page.locator(".problems li")).to_have_count(0)


def test_attributes_of_earlier_documents_are_completed(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    options = page.locator(".completions").get_by_role("option")
    for begin in ("FORALL x (x.", "EXISTS (SELECT 1 FROM history AS x WHERE x."):
        write(page, begin + "bra")
        expect(options.first).to_contain_text("brand")
        page.keyboard.press("Tab")
        page.keyboard.type("<> ")
        expect(options.first).to_contain_text("of the event")
        page.keyboard.press("Enter")
        page.keyboard.type(")")
        assert page.locator("textarea").input_value() == begin + "brand <> brand )"


def test_what_it_would_have_matched_shows_before_it_is_saved(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    expect(page.get_by_text("to try an expression on")).to_be_visible()
    expression = "price < 250 AND color = 'red'"
    write(page, expression)
    matcher = dibs.Matcher()
    matcher.add("a", expression)
    events = shop.client(token="").get("/v1/events", params={"limit": 1000}).json()["events"]
    count = sum(bool(matcher.match(one["event"])) for one in events)
    expect(page.locator("#would-match")).to_have_text(str(count))
    expect(page.get_by_role("img", name="Matches over time")).to_be_visible()
    expect(page.locator(".examples li").first).to_contain_text("price")
    assert all('"red"' in text for text in page.locator(".examples li").all_inner_texts())
    write(page, "price < 0")
    expect(page.get_by_text("Nothing would have matched")).to_be_visible()


def test_matches_and_events_are_drawn_to_one_scale(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    write(page, "color = 'red'")
    expect(page.get_by_role("img", name="Matches over time")).to_be_visible()
    found = shop.client(token="").post("/v1/backtest", json={"expression": "color = 'red'"}).json()["histogram"]
    most = max(found, key=lambda bar: bar["events"])
    place = "figure.picture svg rect.{}"
    heights = {name: page.eval_on_selector_all(place.format(name), TALLEST) for name in ("bar", "faint")}
    assert heights["faint"] == pytest.approx(100)
    assert heights["bar"] == pytest.approx(100 * max(b["count"] for b in found) / most["events"], rel=0.01)
    expect(page.locator("figure .key")).to_contain_text(f"events, at most {most['events']}")


def test_why_nothing_matches_and_what_was_meant(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url)
    kept = shop.client(token="").get("/v1/events").json()["kept"]
    write(page, "prise < 300 AND brand = 5 AND category = 'phone'")
    why = page.locator("#why")
    expect(why).to_contain_text("prise: never seen. Did you mean price, in")
    expect(why).to_contain_text("brand = 5 asks for a number, but brand is a string in")
    expect(page.locator("#left")).to_have_text(f"Events that its conditions leave: {kept} → 0 → 0 → 0")
    why.get_by_role("button", name="price").click()
    expect(page.locator("textarea")).to_have_value("price < 300 AND brand = 5 AND category = 'phone'")
    expect(why).not_to_contain_text("never seen")
    expect(page.locator("#left")).not_to_contain_text(f"{kept} → 0 ")
    write(page, f"brand = 'none' AND `{NASTY}` = 1")
    expect(why).to_contain_text("never seen")
    assert page.title() != "broken"


def test_a_subscription_is_saved_with_a_destination_and_a_mode_and_edited(
    shop: Running, api: httpx.Client, open_page: Callable[..., Any]
) -> None:
    page = open_page(shop.url)
    write(page, "price < 60")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("Give it a name first")).to_be_visible()
    page.get_by_label("Name").fill("very/cheap")
    page.get_by_label("Matches go to").select_option("+")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("saving")
    dialog.get_by_label("Address").fill("http://169.254.169.254/")
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("may not go")
    dialog.get_by_label("Address").fill("http://127.0.0.1:9/hook")
    dialog.get_by_role("button", name="Add").click()
    expect(page.locator(".secret")).to_contain_text("whsec_")
    page.get_by_role("button", name="I have kept it").click()
    page.get_by_label("Tell").select_option("transition")
    page.get_by_label("For each value of").fill("seller.rating")
    page.locator("textarea").focus()
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("heading", name="Edit very/cheap")).to_be_visible()
    saved = api.get("/v1/subscriptions/very%2Fcheap").json()
    assert saved["expression"] == "price < 60" and saved["destination"] == "saving"
    assert saved["mode"] == {"kind": "transition", "key": "seller.rating"}

    write(page, "price < 61")
    page.locator("#save").click()
    expect(page.get_by_text("Changes saved")).to_be_visible()
    assert api.get("/v1/subscriptions/very%2Fcheap").json()["expression"] == "price < 61"
    api.put("/v1/subscriptions/very%2Fcheap", json={"expression": "price < 1"}).raise_for_status()
    page.locator("#save").click()
    expect(page.get_by_text("Somebody else has changed it")).to_be_visible()
    api.delete("/v1/subscriptions/very%2Fcheap").raise_for_status()


# ---- inspecting ----


def test_an_event_is_inspected(shop: Running, api: httpx.Client, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url, "events")
    event = {"category": "phone", "price": 250, "color": "blue"}
    page.get_by_label("Event as JSON").fill(json.dumps(event))
    expect(page.locator("#matches .ids button")).to_have_text(["cheap-phones"])
    page.get_by_role("button", name="cheap-phones").click()
    expect(page.locator("#matches .verdict")).to_contain_text("cheap-phones matches")
    assert page.locator("#matches .tree .sign").all_inner_texts() == ["✓", "✓", "✓"]

    page.get_by_label("Subscription", exact=True).fill("red-things")
    page.get_by_role("button", name="Explain").click()
    tree = page.get_by_label("Explanation").last
    expect(tree).to_contain_text("color is 'blue'")
    assert "✗" in tree.locator(".sign").all_inner_texts()

    expect(page.locator("#misses")).to_contain_text("1 subscription fails only on price")
    expect(page.locator("#misses summary").first).to_contain_text("price")  # a number beside it, not another word
    page.locator("#misses summary", has_text="price").click()
    page.get_by_role("button", name="cheaper-phones").click()
    expect(page.locator("#misses .tree")).to_contain_text("price is 250, above 100")

    page.get_by_label("Event as JSON").fill("{")
    expect(page.get_by_text("not yet JSON")).to_be_visible()
    page.locator(".pick button").first.click()
    [latest] = api.get("/v1/events", params={"limit": 1}).json()["events"]
    assert json.loads(page.get_by_label("Event as JSON").input_value()) == latest["event"]
    expect(page.locator("#matches h2")).to_contain_text("match")


# ---- the list ----


def test_the_list_shows_how_often_each_has_matched(
    shop: Running, api: httpx.Client, open_page: Callable[..., Any]
) -> None:
    page = open_page(shop.url, "subscriptions")
    row = page.locator("[data-id='cheap-phones']")
    total = api.get("/v1/subscriptions/cheap-phones", params={"counts": True}).json()["matches"]["total"]
    assert total > 0
    expect(row.locator(".count")).to_contain_text(str(total))
    expect(row.get_by_role("img", name="Matches in the last 24 hours")).to_be_visible()
    expect(page.locator("[data-id='nobody-sells-these']")).to_contain_text("silent")
    expect(page.locator(f'[data-id="{NASTY}"]')).to_contain_text("<b>bold</b>")  # as text
    assert page.title() == "Subscriptions · Dibs"
    page.get_by_role("button", name="Silent").click()
    expect(row).to_be_hidden()
    page.get_by_role("button", name="All", exact=True).click()
    page.keyboard.press("/")
    page.keyboard.type("CHEAPER")
    expect(page.locator(".item")).to_have_count(1)
    page.keyboard.type("zzz")
    expect(page.get_by_text("Nothing found")).to_be_visible()


def test_pause_and_delete_with_undo_by_keys(shop: Running, api: httpx.Client, open_page: Callable[..., Any]) -> None:
    body = {"expression": "price = 1", "owner": "ben", "labels": {"a": "b"}, "weight": 2.5}
    api.put("/v1/subscriptions/short-lived", json=body).raise_for_status()
    page = open_page(shop.url, "subscriptions")
    row = page.locator("[data-id='short-lived']")
    row.focus()
    page.keyboard.press("p")
    expect(row).to_contain_text("paused")
    assert api.get("/v1/subscriptions/short-lived").json()["paused"] is True
    page.keyboard.press("p")
    expect(row.get_by_role("button", name="Pause")).to_be_visible()
    page.keyboard.press("Delete")
    expect(row).to_have_count(0)
    assert api.get("/v1/subscriptions/short-lived").status_code == 404
    page.get_by_role("button", name="Undo").click()
    expect(row).to_be_visible()
    again = api.get("/v1/subscriptions/short-lived").json()
    assert {name: again[name] for name in body} == body
    row.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Edit short-lived")).to_be_visible()
    page.goto(f"{shop.url}/console#/subscriptions")
    page.locator("[data-id='7']").focus()
    page.keyboard.press("Enter")  # an integer id
    expect(page.get_by_role("heading", name="Edit 7")).to_be_visible()
    api.delete("/v1/subscriptions/short-lived").raise_for_status()


def test_broken_deliveries_are_seen_and_sent_again(
    shop: Running, api: httpx.Client, open_page: Callable[..., Any]
) -> None:
    api.put("/v1/destinations/broken", json={"kind": "webhook", "target": "http://127.0.0.1:9/"}).raise_for_status()
    body = {"expression": "price = 1", "destination": "broken"}
    api.put("/v1/subscriptions/unlucky", json=body).raise_for_status()
    outbox = shop.service.outbox

    def fail(count: int) -> None:
        """As a deliverer does that has tried often enough."""
        api.post("/v1/publish", content=b'{"price": 1}\n' * count, headers=JSON_LINES).raise_for_status()
        sending = Sending(outbox)
        lane = next(one for one in sending.lanes()[0] if one.destination.name == "broken")
        retry = datetime.now(timezone.utc).timestamp() + 60
        waiting = sending.head(lane.number, 99)
        sending.settle([Outcome(lane.number, d.number, "answered 500", retry, given_up=True) for d in waiting])

    fail(1)

    page = open_page(shop.url, "subscriptions")
    expect(page.get_by_role("img", name="something is not delivered")).to_be_visible()
    page.get_by_role("button", name="Broken delivery").click()
    expect(page.locator(".item")).to_have_count(1)
    expect(page.locator("[data-id='unlucky']")).to_contain_text("failing for")
    page.get_by_role("link", name="Deliveries").click()
    expect(page.locator("[data-destination='broken']")).to_contain_text("answered 500")
    assert page.locator("#dead-letters > *").count() == page.evaluate(
        "document.querySelector('#dead-letters').childNodes.length"
    )
    page.locator("#dead-letters").get_by_role("button", name="Send again").click()
    expect(page.get_by_text("1 delivery will be sent again")).to_be_visible()
    wait_until(lambda: outbox.dead_letters("main") == [])
    outbox.put_destination(outbox.destination("broken", "main"))  # tried again at once
    fail(70)
    expect(page.locator("#dead-letters")).to_contain_text("The first 50 of 71")
    page.locator("#dead-letters").get_by_role("button", name="Send all 71 again").click()
    expect(page.get_by_text("71 deliveries will be sent again")).to_be_visible()
    wait_until(lambda: outbox.dead_letters("main") == [])
    page.locator("[data-destination='broken']").get_by_role("button", name="Pause").click()
    expect(page.locator("[data-destination='broken']")).to_contain_text("paused")
    page.locator("[data-destination='broken']").get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.locator("[data-destination='broken']")).to_have_count(0)
    api.delete("/v1/subscriptions/unlucky").raise_for_status()


# ---- live and load ----


def test_the_live_view_can_be_paused(shop: Running, api: httpx.Client, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url, "live")
    expect(page.get_by_text("connected", exact=True)).to_be_visible()
    api.post("/v1/publish", json={"category": "watch", "mark": "first"}).raise_for_status()
    expect(page.locator(".live li")).to_contain_text(["first"])
    expect(page.locator(".live li").first).to_contain_text("1 match: 7")
    page.keyboard.press("Space")
    api.post("/v1/publish", json={"mark": "second"}).raise_for_status()
    expect(page.get_by_role("button", name="Resume (1 new)")).to_be_visible()
    assert "second" not in page.locator(".live").inner_text()
    page.keyboard.press("Space")
    expect(page.locator(".live li").first).to_contain_text("second")
    expect(page.locator(".live li").first).to_contain_text("no match")
    expect(page.get_by_role("img", name="Events per second")).to_be_visible()
    expect(page.locator(".ends").first).not_to_contain_text("60 s ago")  # it was opened later than that


def test_load_and_plan_are_pictures(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url, "load")
    expect(page.get_by_role("img", name="Events per minute")).to_be_visible()
    expect(page.locator("#latency")).to_contain_text("/v1/publish")
    expect(page.locator("#plan")).to_be_visible()
    expect(page.locator(".figures")).to_contain_text(str(len(SUBSCRIPTIONS)))


# ---- signing in, keys, themes, phones ----


def test_a_token_is_asked_for(tmp_path: Path, open_page: Callable[..., Any]) -> None:
    with running(tmp_path / "searches") as served:
        page = open_page(served.url, "subscriptions")
        page.get_by_label("Token").fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_text("This token is not known here")).to_be_visible()
        page.get_by_label("Token").fill(served.token("garden", "read"))
        page.keyboard.press("Enter")
        expect(page.get_by_text("No subscriptions yet")).to_be_visible()
        expect(page.locator("#who")).to_contain_text("garden · read")
        page.goto(f"{served.url}/console#/write")
        write(page, "a = 1")
        expect(page.get_by_text("No events yet")).to_be_visible()
        page.get_by_label("Name").fill("mine")
        page.locator("#save").click()
        expect(page.locator(".toast.bad")).to_be_visible()  # its role is to read
        page.goto("about:blank")


def test_everything_is_reached_with_the_keyboard(shop: Running, open_page: Callable[..., Any]) -> None:
    page = open_page(shop.url, "load")
    expect(page.get_by_role("heading", name="Load")).to_be_visible()
    for key, title in zip("23456", ("Subscriptions", "Inspect an event", "Live", "Deliveries", "Load")):
        page.keyboard.press(key)
        expect(page.get_by_role("heading", name=title, level=1)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    before = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") != before
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.keyboard.press("n")
    expect(page.locator("textarea")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("2")
    row = page.locator(".item").first
    expect(row).to_be_visible()
    page.keyboard.press("j")
    expect(row).to_be_focused()


def test_each_view_fits_a_phone_and_names_its_controls(
    shop: Running, api: httpx.Client, open_page: Callable[..., Any]
) -> None:
    unnamed = """() => [...document.querySelectorAll("button, a, input, select, textarea")]
        .filter((e) => e.offsetParent && !(e.ariaLabel || e.innerText.trim() || e.title || e.labels?.length)).length"""
    hidden = """() => [...document.querySelectorAll("#main .tag, #main pre")]
        .filter((e) => e.getBoundingClientRect().right > 375).map((e) => e.innerText)"""
    row = {"id": f"a-{'long-name-' * 5}", "expression": "category = 'watch'"}
    api.post("/v1/subscriptions", content=json.dumps(row), headers=JSON_LINES).raise_for_status()
    page = open_page(shop.url, viewport={"width": 375, "height": 800}, color_scheme="dark")
    for view in ("write", "subscriptions", "events", "live", "deliveries", "load"):
        page.goto(f"{shop.url}/console#/{view}")
        expect(page.locator("h1")).to_be_visible()
        page.wait_for_load_state("load")
        if view == "live":
            api.post("/v1/publish", json=EVENTS[0] | {"brand": "x" * 60, "category": "watch"}).raise_for_status()
            expect(page.locator(".live .tag").first).to_be_visible()
        if view == "load":
            page.locator("#plan summary").click()
        assert page.evaluate("document.scrollingElement.scrollWidth") <= 375, view
        assert page.evaluate(hidden) == [], view
        assert page.evaluate(unnamed) == 0, view
    api.delete(f"/v1/subscriptions/{row['id']}").raise_for_status()


# ---- the files ----


def colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_can_be_read_in_both_themes() -> None:
    """4.5 to 1, as WCAG asks for."""
    style = (FOLDER / "base.css").read_text()
    light, dark = (colours(block) for block in re.split(r"\n\s+color-scheme:", style)[:2])
    assert light and set(light) == set(dark)
    for theme in (light, dark):
        pairs = [
            (ink, "card")
            for ink in ("ink", "soft", "quiet", "accent", "yes", "no", "unknown", "keyword", "text", "number")
        ]
        pairs += [(ink, "paper") for ink in ("ink", "soft", "quiet", "accent")]
        pairs += [
            ("accent", "tint"),
            ("yes", "tint"),
            ("no", "no-tint"),
            ("unknown", "warn-tint"),
            ("accent-ink", "accent"),
        ]
        pairs += [("soft", "sunk"), ("quiet", "tint")]
        for ink, ground in pairs:
            high, low = sorted((luminance(theme[ink]), luminance(theme[ground])), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 4.5, (ink, ground)


def test_files_are_those_of_the_package_and_nothing_else(shop: Running, api: httpx.Client) -> None:
    for name, (content, media) in files().items():
        answer = api.get(f"/console/{name}")
        assert answer.content == content and answer.headers["content-type"] == media
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert not re.search(rb"https?://(?!www\.w3\.org/2000/svg|example\.org)", content), name
    for path in ("/console/none.js", "/console/..%2Fpages.py", "/console/%2e%2e", "/console/static/main.js"):
        assert api.get(path).status_code == 404
    assert api.get("/").headers["location"] == "/console"
