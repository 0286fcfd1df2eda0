"""Every code block of the documents runs, in order, and prints what the page says; links lead somewhere."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import pkgutil
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

import dibs

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """(line, text) of the fenced blocks of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(rf"^( *)```{language}\n(.*?)^\1```$", text, re.M | re.S)
    return [(text.count("\n", 0, m.start()) + 2, textwrap.dedent(m[2])) for m in found]


def python_blocks(page: str, of_spark: bool) -> list[tuple[int, str]]:
    return [(line, text) for line, text in blocks(page, "python") if ("spark" in text) == of_spark]


# docs/delivery.md is run by tests/service, against a service.
EVERYWHERE = [
    "README.md",
    *sorted(str(path.relative_to(ROOT)) for path in DOCS.rglob("*.md") if path.stem != "delivery"),
]
PAGES = [page for page in EVERYWHERE if python_blocks(page, of_spark=False)]
SPARK_PAGES = [page for page in EVERYWHERE if python_blocks(page, of_spark=True)]


def test_there_are_examples() -> None:
    assert {"README.md", "docs/language.md", "docs/tutorial.md", "docs/guides/price-alerts.md"} <= set(PAGES)
    assert {"README.md", "docs/tutorial.md", "docs/guides/data-quality.md"} <= set(SPARK_PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks(page, tmp_path, monkeypatch):
    """The blocks of a page are one session; those with >>> are compared with what they print."""
    monkeypatch.chdir(tmp_path)
    session: dict = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for line, text in python_blocks(page, of_spark=False):
        if ">>>" in text:
            test = doctest.DocTestParser().get_doctest(text, session, f"{page}:{line}", page, line - 1)
            test.globs = session  # one session for the page
            output: list[str] = []
            runner.run(test, out=output.append, clear_globs=False)
            assert not runner.summarize(verbose=False).failed, "".join(output)
        else:
            exec(compile(text, f"{page}:{line}", "exec"), session)


@pytest.mark.spark
@pytest.mark.parametrize("page", SPARK_PAGES)
def test_spark_blocks(page, spark, tmp_path, monkeypatch):
    """The Spark blocks of a page are one session, with `spark` in it."""
    monkeypatch.chdir(tmp_path)
    session: dict = {"__name__": "__main__", "spark": spark}
    for line, text in python_blocks(page, of_spark=True):
        exec(compile(text, f"{page}:{line}", "exec"), session)


@pytest.mark.parametrize("page", [page for page in EVERYWHERE if blocks(page, "py")])
def test_blocks_that_need_other_machines_are_python(page):
    """What is set as `py` asks for what tests do not have: buckets, brokers, tables of Delta."""
    for line, text in blocks(page, "py"):
        compile(text, f"{page}:{line}", "exec")


@pytest.fixture(scope="module")
def notebook_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("write_notebook", DOCS / "write_notebook.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_gives_what_it_shows(notebook_module, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(notebook_module.NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    session: dict = {"__name__": "__main__"}
    compared = 0
    for cell in cells:
        if cell["cell_type"] == "code":
            source = "".join(cell["source"])
            found = notebook_module.run(source, session)
            if "explain_plan" in source:  # it tells of nanoseconds
                assert "3,000 subscriptions, index auto" in found[0]["data"]["text/html"][0]
            else:
                assert found == cell["outputs"], f"{source}: python docs/write_notebook.py writes them anew"
                compared += len(found)
    assert compared >= 10


@pytest.mark.slow
def test_the_site_is_made_without_a_warning(tmp_path):
    """Every page is in the contents, every link, anchor and docstring is as it should be."""
    program = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "docs", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "geo_distance" in (tmp_path / "searchindex.js").read_text()
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"(https?:[^\"]*)", page.read_text())
        assert loaded == [], f"{page.name} loads from elsewhere"


def test_console_blocks(tmp_path):
    """Lines that start with $ dibs run as written; the lines below are what they print."""
    found = [(line, text) for page in EVERYWHERE for line, text in blocks(page, "console")]
    assert found
    for line, text in found:
        for command, expected in re.findall(r"^\$ (dibs .*)\n((?:(?!\$ ).*\n)*)", text, re.M):
            program = [sys.executable, "-m", "dibs.cli"]
            words = subprocess.run(
                ["bash", "-c", command.replace("dibs ", '"$@" ', 1), "dibs", *program],
                cwd=ROOT / "examples",
                capture_output=True,
                text=True,
                timeout=120,
            )
            assert words.stdout.strip() == expected.strip(), f"line {line}: {command}\n{words.stdout}{words.stderr}"


def modules() -> list[str]:
    found = [m.name for m in pkgutil.walk_packages(dibs.__path__, "dibs.")]
    return [name for name in found if not name.startswith("dibs.spark") and "__main__" not in name]


@pytest.mark.parametrize("name", ["dibs", *modules()])
def test_doctests(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=FLAGS)
    assert result.failed == 0


def test_every_index_is_described():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for name in dibs.indexes():
        assert f"`{name}`" in text, f"ARCHITECTURE.md does not say what the index {name!r} is"


def anchors(path: Path) -> set[str]:
    """Of the headings of a page, as renderers of Markdown make them."""
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    words = (re.sub(r"[^\w\s-]", "", heading.lower()) for heading in re.findall(r"^#+ (.*)$", text, re.M))
    return {re.sub(r"\s", "-", heading.strip()) for heading in words}


@pytest.mark.parametrize(
    "page", [*sorted(path.name for path in ROOT.glob("*.md")), "examples/README.md", *EVERYWHERE[1:]]
)
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", text):
        if "://" in target:
            continue
        path = (ROOT / page).parent / target if target else ROOT / page
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page} links to {target}#{anchor}"


def test_architecture_names_every_file():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for file in sorted((ROOT / "src/dibs").rglob("*.py")):
        if file.name != "__init__.py":
            assert file.name in text, f"ARCHITECTURE.md does not mention {file.relative_to(ROOT)}"
