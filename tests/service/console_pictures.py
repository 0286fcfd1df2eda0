"""Pictures of every view of the console, to be looked at: light and dark, on a wide screen, a usual one and a phone.

    python tests/service/console_pictures.py /tmp/pictures

A file for each state of a view, each size of the window and each theme. The service is `dibs serve --demo`, with a
webhook that does not answer.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from serving import JSON_LINES, Processes

FORMS = {  # width and height of the window
    "usual": (1280, 860),
    "wide": (1920, 1000),
    "phone": (390, 844),
}
NOWHERE = "http://127.0.0.1:9/hook"
LITTLE = "prise < 5000 AND category = 'audio' AND rating > 'four' AND brand = 'Nobody'"


def write(page: Any, text: str) -> None:
    area = page.get_by_label("Expression", exact=True).and_(page.locator("textarea"))
    area.fill(text)
    page.wait_for_timeout(900)


def write_preview(page: Any) -> None:
    write(page, "price < 100 AND condition = 'new'")


def write_mistake(page: Any) -> None:
    write(page, "price < AND brand = 'Acme")


def write_little(page: Any) -> None:
    write(page, LITTLE)


def write_never(page: Any) -> None:
    write(page, "price > 500 AND price < 100")


def write_function(page: Any) -> None:
    write(page, "")
    page.locator("textarea").press_sequentially("length(title) > 5 AND date_tr")
    page.wait_for_selector(".completions li")


def write_call(page: Any) -> None:
    write(page, "")
    page.locator("textarea").press_sequentially("price < 900 AND substring(tit")
    page.wait_for_selector(".completions li")


def edit_first(page: Any) -> None:
    page.wait_for_timeout(500)
    page.keyboard.press("j")
    page.keyboard.press("Enter")


def delete_first(page: Any) -> None:
    page.wait_for_timeout(500)
    page.keyboard.press("j")
    page.keyboard.press("d")


def inspect(page: Any) -> None:
    page.locator(".pick button").first.click()
    page.wait_for_selector("#misses")
    page.locator("#misses summary").first.click()
    page.locator("#matches .ids button, #misses .ids button").first.click()


def not_yet_json(page: Any) -> None:
    page.get_by_label("Event as JSON").fill('{"price": ')


def new_destination(page: Any) -> None:
    page.get_by_role("button", name="New destination").click()


def remove_destination(page: Any) -> None:
    page.get_by_role("button", name="Remove").first.click()


def plan_in_words(page: Any) -> None:
    page.wait_for_selector("#plan")
    if page.locator("#plan summary").count():
        page.locator("#plan summary").click()


def keyboard(page: Any) -> None:
    page.wait_for_timeout(300)
    page.keyboard.press("?")


def nothing(page: Any) -> None:
    pass


STATES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "write": ("write", nothing),
    "write-preview": ("write", write_preview),
    "write-mistake": ("write", write_mistake),
    "write-little": ("write", write_little),
    "write-never": ("write", write_never),
    "write-function": ("write", write_function),
    "write-call": ("write", write_call),
    "subscriptions": ("subscriptions", nothing),
    "subscriptions-edit": ("subscriptions", edit_first),
    "subscriptions-undo": ("subscriptions", delete_first),
    "events": ("events", nothing),
    "events-inspected": ("events", inspect),
    "events-mistake": ("events", not_yet_json),
    "live": ("live", nothing),
    "deliveries": ("deliveries", nothing),
    "deliveries-new": ("deliveries", new_destination),
    "deliveries-remove": ("deliveries", remove_destination),
    "load": ("load", plan_in_words),
    "keyboard": ("live", keyboard),
}


def fill(url: str) -> None:
    """What the demo does not have: a webhook that fails, subscriptions of all modes, long names."""
    with httpx.Client(base_url=url, timeout=30) as client:
        client.put("/v1/destinations/broken", json={"kind": "webhook", "target": NOWHERE}).raise_for_status()
        rows: list[dict[str, Any]] = [
            {"id": "0-all-of-it", "expression": "price > 0", "destination": "broken", "owner": "anna"},
            {"id": "0-paused", "expression": "price < 50", "paused": True, "labels": {"team": "mobile"}},
            {"id": f"0-{'long-name-' * 12}", "expression": " OR ".join(f"brand = 'Brand {n}'" for n in range(40))},
            {"id": "0-<b>markup</b>", "expression": "title LIKE '%<script>%'", "mode": "transition"},
        ]
        lines = "\n".join(map(json.dumps, rows))
        client.post("/v1/subscriptions", content=lines, headers=JSON_LINES).raise_for_status()
        for n in range(5):
            client.post("/v1/publish", json={"price": 5 + n, "brand": "Acme"}).raise_for_status()
        end = time.monotonic() + 60
        while not client.get("/v1/deliveries/dead").json()["dead"] and time.monotonic() < end:
            time.sleep(0.2)


def picture(browser: Any, url: str, name: str, form: str, theme: str, folder: Path) -> list[str]:
    """What went wrong meanwhile: errors, and contents wider than the window."""
    width, height = FORMS[form]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    view, prepare = STATES[name]
    page.goto(f"{url}/console#/{view}")
    page.wait_for_selector("#main h1")
    page.wait_for_timeout(700)
    prepare(page)
    page.wait_for_timeout(700)
    broad = page.evaluate("document.documentElement.scrollWidth")
    if broad > width:
        wrong.append(f"{broad} pixels wide, in a window of {width}")
    page.screenshot(path=folder / f"{name}-{form}-{theme}.png")
    page.close()
    return wrong


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("--only", default=".", help="states whose name has this pattern")
    chosen = options.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    os.environ |= {"DIBS_DELIVERY_ATTEMPTS": "2", "DIBS_DELIVERY_FIRST": "0.05"}
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with (
        tempfile.TemporaryDirectory() as temporary,
        Processes(Path(temporary) / "demo", "--open", "--demo", "--private-targets") as served,
        sync_playwright() as driver,
    ):
        fill(served.url)
        time.sleep(10)  # some products have come
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in filter(lambda each: re.search(chosen.only, each), STATES):
            for form, theme in itertools.product(FORMS, ("light", "dark")):
                for problem in picture(browser, served.url, name, form, theme, chosen.folder):
                    print(f"{name}, {form}, {theme}: {problem}", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
