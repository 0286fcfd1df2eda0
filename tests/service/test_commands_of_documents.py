"""Every command of docs/service.md and docs/delivery.md is run as it stands there, by bash, in the order of the pages,
against a service. Only what a reader has to replace is replaced: the port, the token, the name of a token."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from serving import Running, running

from command_line import run
from dibs.matcher import Matcher
from dibs.service.database import Database
from dibs.service.delivery import DeliverySettings
from dibs.service.delivery.signing import BadSignature, sign
from dibs.service.settings import DATABASE
from dibs.service.tokens import create_token

ROOT = Path(__file__).parents[2]
PAGES = ("service.md", "delivery.md")
PROGRAMS = "dibs|curl|sqlite3|openssl|docker|pip|websocat|export"
TOOLS = """
set -eE
trap 'echo "FAILED: $BASH_COMMAND" >&2' ERR
dibs() { if [ "$1" = serve ]; then return 0; fi; "$PYTHON" -m dibs.cli "$@"; }  # serving is another test
pip() { "$PYTHON" "$HERE/extras.py" "$@"; }
websocat() { "$PYTHON" "$HERE/websocat.py" "$@"; }
curl() {
    case " $* " in
    *" -N "*)  # it has no end
        timeout 2 curl -sS --fail-with-body "$@" > stream.txt || [ $? = 124 ]
        grep -q here stream.txt ;;
    *) command curl -sS --fail-with-body "$@"; echo ;;
    esac
}
"""
# There is no websocat everywhere: what it does with these arguments.
WEBSOCAT = """
import sys
from websockets.sync.client import connect
flag, header, url = sys.argv[1:]
assert flag == "-H"
name, _, value = header.partition(": ")
with connect(url, additional_headers={name: value}, proxy=None):
    print("connected")
"""
# Nothing is installed by a test: that there is such an extra.
EXTRAS = """
import re, sys
from importlib.metadata import metadata
command, wanted = sys.argv[1:]
extra = re.fullmatch(r"dibs\\[(\\w+)\\]", wanted)[1]
assert command == "install" and extra in metadata("dibs").get_all("Provides-Extra"), wanted
"""


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def blocks(name: str) -> list[str]:
    """Those without a language: they are for a shell."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page(name), re.M | re.S)
    return [text for language, text in fences if language == ""]


def commands_in_lines(name: str) -> list[str]:
    """Those in the text."""
    prose = re.sub(r"^```.*?^```$", "", page(name), flags=re.M | re.S)
    return [" ".join(found.split()) for found in re.findall(rf"`((?:{PROGRAMS}) [^`]+)`", prose)]


SERVED = [
    line for name in PAGES for block in blocks(name) for line in block.splitlines() if line.startswith("dibs serve")
]
WHOLE = {  # in the text, with all that they need: how they are run
    "openssl rand -base64 32 > secrets.key": ["openssl rand -base64 32 > secrets.key"],
    'sqlite3 ./searches/NAME ".backup NAME"': [
        f'mkdir -p {Path(name).parent}; sqlite3 ./searches/{name} ".backup {name}"'
        for name in ("catalog/catalog.db", "service.sqlite", "outbox.sqlite")
    ],
    "dibs catalog export ./searches backup.parquet": ["dibs catalog export ./searches backup.parquet"],
    "dibs catalog import ./new backup.parquet": ["dibs catalog import ./new backup.parquet"],
    "pip install 'dibs[kafka]'": ["pip install 'dibs[kafka]'"],
}
ELSEWHERE = {"docker compose up"}  # needs docker: what it starts is looked at below


@pytest.fixture(scope="module")
def searches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service in ./searches of a folder that has the files that the commands name. Nothing leaves the machine."""
    place = tmp_path_factory.mktemp("reader")
    (place / "events.jsonl").write_text('{"price": 550}\n{"price": 700}\n')
    (place / "subscriptions.jsonl").write_text('{"id": "carol", "expression": "price > 600"}\n')
    (place / "websocat.py").write_text(WEBSOCAT)
    (place / "extras.py").write_text(EXTRAS)
    with running(place / "searches", deliver=False) as served:
        yield served


def bash(served: Running, script: str) -> str:
    """Runs as it stands, but for what a reader replaces; what it prints."""
    place = served.settings.folder.parent
    database = Database(served.settings.folder / DATABASE)
    name, _ = create_token(database, "acme")
    database.close()
    token = served.token("*", "admin")
    text = script.replace("8080", str(served.port)).replace("dibs_...", token).replace("3f9a01bc", name)
    done = subprocess.run(
        ["bash", "-c", f"{TOOLS}\n{text}"],
        cwd=place,
        env={**os.environ, "PYTHON": sys.executable, "HERE": str(place)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0 and "FAILED" not in done.stderr, f"{done.stderr}\n{done.stdout}"
    return done.stdout


def test_the_blocks_of_both_pages(searches: Running) -> None:
    scripts = [block for name in PAGES for block in blocks(name)]
    assert len(scripts) >= 5 and sum(script.count("curl ") for script in scripts) >= 15
    for script in scripts:
        for line in script.splitlines():
            assert re.match(rf"(?:{PROGRAMS}) | +", line), f"a command that is not known here: {line}"
    said = bash(searches, "\n".join(scripts))
    for answer in re.findall(r"#\s+(\{.*\})$", "\n".join(scripts), re.M):
        assert answer in said, answer
    assert "connected" in said and '"valid":false' in said and "dibs_" in said
    client = searches.client()
    assert {"alice", "bob", "carol", "low", "seen"} == {
        s["id"] for s in client.get("/v1/subscriptions").json()["subscriptions"]
    }
    assert {"ops", "live"} == {one["name"] for one in client.get("/v1/destinations").json()["destinations"]}
    assert "acme" in run("token", "list", str(searches.settings.folder)).stdout


def test_the_commands_in_the_text(searches: Running) -> None:
    found = {command for name in PAGES for command in commands_in_lines(name)}
    assert found >= WHOLE.keys() | ELSEWHERE
    bash(searches, "\n".join(line for lines in WHOLE.values() for line in lines))
    place = searches.settings.folder.parent
    with Matcher.open(place / "new") as restored:
        assert len(restored) == len(searches.matcher)
    (place / "backup").mkdir()
    for name in ("catalog", "service.sqlite", "outbox.sqlite"):
        (place / name).rename(place / "backup" / name)
    with running(place / "backup") as again:
        client = again.client()
        assert len(again.matcher) == len(searches.matcher) > 0
        assert {one["name"] for one in client.get("/v1/destinations").json()["destinations"]} == {"ops", "live"}
    for command in found - WHOLE.keys() - ELSEWHERE:  # names of commands: they are there
        program, *words = shlex.split(command)
        assert program == "dibs", f"{command}: say how it is run"
        assert run(*words, "--help").exit_code == 0, command


@pytest.mark.parametrize("command", SERVED)
def test_serving(tmp_path: Path, command: str) -> None:
    words = shlex.split(command, comments=True)
    assert words[:2] == ["dibs", "serve"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dibs.cli", *words[1:], "--port", "0"], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = ""
        while not re.search("shown this once|may do everything", said):
            line = process.stderr.readline()
            assert line, said
            said += line
        [url] = re.findall(r" at (http\S+) ", said)
        token = re.findall(r"shown this once: (\S+)", said)
        headers = {"Authorization": f"Bearer {token[0]}"} if token else {}
        wanted = 20_000 if "--demo" in words else 0
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            _wait_for(client, lambda: client.get("/ready").status_code == 200)
            _wait_for(client, lambda: client.get("/v1/events").json()["kept"] > 0 or not wanted)
            assert client.get("/v1/subscriptions?limit=1").json()["total"] == wanted
    finally:
        process.terminate()
        process.wait(40)
        process.stderr.close()
    assert process.returncode in (0, -signal.SIGTERM)  # uvicorn stops, and then dies of what it was told


def _wait_for(client: httpx.Client, condition: Any) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            if condition():
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_options_and_variables_of_the_text_are_there() -> None:
    prose = "".join(re.sub(r"^```.*?^```$", "", page(name), flags=re.M | re.S) for name in PAGES)
    told = "".join(
        run(*words, "--help").stdout for words in (["serve"], ["match"], ["token", "limits"], ["token", "create"])
    )
    options = set(re.findall(r"`[^`]*?(--[a-z][a-z-]+)", prose))
    assert len(options) > 8
    assert {option for option in options if option not in told} == set()
    variables = re.findall(r"DIBS_DELIVERY_([A-Z]+)", prose)
    assert variables and all(hasattr(DeliverySettings(), name.lower()) for name in variables)


def test_what_docker_compose_starts() -> None:
    yaml = importlib.import_module("yaml")
    [service] = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"].values()
    told = run("serve", "--help").stdout
    assert service["command"][0] == "serve" and all(w in told for w in service["command"] if w.startswith("--"))


def test_the_python_of_delivery() -> None:
    [(block,)] = [re.findall(r"^```python\n(.*?)^```$", page("delivery.md"), re.M | re.S)]
    body, now = b'{"delivery": "d-1"}', int(time.time())
    headers = {
        "webhook-id": "d-1",
        "webhook-timestamp": str(now),
        "webhook-signature": sign("whsec_x", "d-1", now, body),
    }
    session: dict[str, Any] = {"secret": "whsec_x", "headers": headers, "body": body}
    exec(block, session)
    assert session["delivery"] == "d-1"
    with pytest.raises(BadSignature):
        exec(block, {**session, "secret": "whsec_y"})


def test_the_extras_of_the_text_are_there() -> None:
    extras = importlib.metadata.metadata("dibs").get_all("Provides-Extra") or []
    named = {extra for name in PAGES for extra in re.findall(r"dibs\[(\w+)\]", page(name))}
    assert named and named <= set(extras)
