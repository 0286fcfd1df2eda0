"""Every code block of the documents runs, in order, and prints what the page says."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dibs

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "LANGUAGE.md"]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: str, language: str) -> list[tuple[int, str]]:
    """(line, text) of the fenced blocks of a language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.finditer(rf"^```{language}\n(.*?)^```$", text, re.M | re.S)
    return [(text.count("\n", 0, m.start()) + 2, m[1]) for m in found]


@pytest.mark.parametrize("page", PAGES)
def test_python_blocks(page, tmp_path, monkeypatch):
    """The blocks of a page are one session; those with >>> are compared with what they print."""
    monkeypatch.chdir(tmp_path)
    found = [(line, text) for line, text in blocks(page, "python") if "pyspark" not in text and "spark" not in text]
    assert found, f"{page} has no Python block"
    session: dict = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    for line, text in found:
        if ">>>" in text:
            test = doctest.DocTestParser().get_doctest(text, session, f"{page}:{line}", page, line - 1)
            test.globs = session  # one session for the page
            output: list[str] = []
            runner.run(test, out=output.append, clear_globs=False)
            assert not runner.summarize(verbose=False).failed, "".join(output)
        else:
            exec(compile(text, f"{page}:{line}", "exec"), session)


@pytest.mark.spark
def test_spark_blocks(spark, tmp_path, monkeypatch):
    """README's Spark blocks, with `spark` as the session."""
    monkeypatch.chdir(tmp_path)
    found = [(line, text) for line, text in blocks("README.md", "python") if "spark" in text]
    assert found
    session: dict = {"__name__": "__main__", "spark": spark}
    for line, text in found:
        exec(compile(text, f"README.md:{line}", "exec"), session)


def test_console_blocks(tmp_path):
    """Lines that start with $ dibs run as written; the lines below are what they print."""
    found = [(line, text) for page in PAGES for line, text in blocks(page, "console")]
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


@pytest.mark.parametrize(
    "page", ["README.md", "ARCHITECTURE.md", "LANGUAGE.md", "BENCHMARKS.md", "DECISIONS.md", "DELIVERY.md"]
)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", (ROOT / page).read_text()):
        if "://" not in target:
            assert (ROOT / target).exists(), f"{page} links to {target}"


def test_architecture_names_every_file():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    for file in sorted((ROOT / "src/dibs").rglob("*.py")):
        if file.name != "__init__.py":
            assert file.name in text, f"ARCHITECTURE.md does not mention {file.relative_to(ROOT)}"
