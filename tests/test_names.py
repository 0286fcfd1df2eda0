"""Modules and files that docstrings, comments and pages name are there. (CHANGELOG.md and docs/decisions tell of what
was: they may name what is gone.)"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "dibs"
FOLDERS = ("src", "tests", "benchmarks", "examples")
OF_THE_PAST = {ROOT / "CHANGELOG.md", *(ROOT / "docs" / "decisions").glob("*.md")}
# `history.add` and `matcher.match` are the API, `spark.sql.…` is Spark's: these count with `dibs.` before them only.
AMBIGUOUS = {
    "history",
    "matcher",
    "matches",
    "client",
    "spark",
    "service",
    "errors",
    "changes",
    "explain",
    "java",
    "items",
    "events",
}
DOTTED = re.compile(r"(?<![\w./\"'-])(dibs\.)?([a-z_]+)((?:\.[A-Za-z_]\w*)+)(?![\w/-])")
FILE = re.compile(r"(?<![\w./{}*-])((?:[a-z][\w-]*/)+[\w-]+\.py)\b")
TEXT = re.compile(r'""".*?"""|(?:^ *|  )#[^\n]*', re.S | re.M)
EXTENSIONS = ("py", "md", "toml", "json", "jsonl", "csv", "parquet", "dibs", "db", "yaml", "html", "js", "svg", "txt")


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """(line, text) of the docstrings and comments of a source, or of the lines of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        yield from enumerate(text.splitlines(), 1)
        return
    for found in TEXT.finditer(text):
        yield from enumerate(found[0].splitlines(), text.count("\n", 0, found.start()) + 1)


@cache
def parts(package: Path) -> frozenset[str]:
    return frozenset(p.stem for p in package.iterdir() if p.suffix == ".py" or (p / "__init__.py").is_file())


@cache
def source_of(place: Path) -> str | None:
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return None


@cache
def defined(source: str) -> frozenset[str]:
    """What a module defines or imports, and what its classes do."""
    imported = " ".join(re.findall(r"^from \S+ import (\([^)]*\)|[^\n]*)", source, re.M))
    own = re.findall(r"^ *(?:async )?(?:def|class) (\w+)|^ {0,4}(\w+)(?::[^=\n]+)? ?(?:=|$)", source, re.M)
    together = " ".join(re.findall(r"^(\w+(?:, \w+)+) = ", source, re.M))
    return frozenset([*re.findall(r"\w+", f"{imported} {together}"), *(a or b for a, b in own)])


def is_there(package: Path, names: list[str]) -> bool:
    """Whether these lead to a module, or to something that a module defines or imports."""
    place = package
    for i, name in enumerate(names):
        if source_of(place / name) is None:
            source = source_of(place)
            return i > 0 and source is not None and name in defined(source)
        place = place / name
    return True


@cache
def folders_below(package: Path) -> dict[str, Path]:
    """Folders of folders by their own names: `tatbul.intervals` is short for where it is."""
    return {p.parent.name: p.parent.parent for p in package.glob("*/*/**/__init__.py")}


def unknown_modules(path: Path, package: Path) -> Iterator[str]:
    for line, text in texts_of(path):
        for prefix, first, more in DOTTED.findall(text):
            names = [first, *more.strip(".").split(".")]
            below = None if prefix or first in parts(package) else folders_below(package).get(first)
            if names[-1] in EXTENSIONS or (
                not prefix and (first in AMBIGUOUS or not (below or first in parts(package)))
            ):
                continue
            if below is not None and is_there(below, names):
                continue
            if prefix and first not in parts(package):
                if is_there(package, ["__init__", first]):
                    continue
            elif is_there(package, names):
                continue
            yield f"{path}:{line}: {prefix}{'.'.join(names)}"


@cache
def files(root: Path) -> str:
    """All sources, each behind a slash and before a line break."""
    return "".join(f"/{p.relative_to(root)}\n" for folder in FOLDERS for p in (root / folder).rglob("*.py"))


def unknown_files(path: Path, root: Path) -> Iterator[str]:
    for line, text in texts_of(path):
        for name in FILE.findall(text):
            if f"/{name}\n" not in files(root):
                yield f"{path}:{line}: {name}"


def read() -> list[Path]:
    pages = [p for p in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")) if p not in OF_THE_PAST]
    sources = [p for folder in FOLDERS for p in (ROOT / folder).rglob("*.py")]
    return sorted({*pages, *sources} - {Path(__file__)})


def test_modules_that_are_named_are_there() -> None:
    assert [found for path in read() for found in unknown_modules(path, PACKAGE)] == []


def test_files_that_are_named_are_there() -> None:
    assert [found for path in read() for found in unknown_files(path, ROOT)] == []


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.py", '"""See index.gone for it."""', ["index.gone"]),
        ("a.py", "x = 1  # as in dibs.index.base.nothing_of_it", ["dibs.index.base.nothing_of_it"]),
        ("a.md", "`index.base.Pairs` and index.base, m.history.add, index.dibs", []),
        ("a.md", "auto.planner, auto.nothing", ["auto.nothing"]),
        ("a.md", "`dibs.nowhere.at_all`", ["dibs.nowhere.at_all"]),
        ("a.md", "src/dibs/index/gone.py and index/base.py", ["src/dibs/index/gone.py"]),
    ],
)
def test_the_check_finds(tmp_path: Path, name: str, text: str, found: list[str]) -> None:
    page = tmp_path / name
    page.write_text(text)
    every = [*unknown_modules(page, PACKAGE), *unknown_files(page, ROOT)]
    assert [each.split(": ")[1] for each in every] == found
