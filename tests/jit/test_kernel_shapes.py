"""Compiled functions stay readable: what belongs together is handed over as a group, and phases have names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "dibs"
DECORATORS = {"kernel", "phase", "step"}
MOST_ARGUMENTS = 9
MOST_LINES = 80


class Shape(NamedTuple):
    arguments: int
    lines: int


def compiled_functions(source: Path) -> Iterator[tuple[str, Shape]]:
    """(file:name, shape) of every function with one of the decorators. `*arrays` counts as one: what is flat there is
    put into groups inside."""
    for path in sorted(source.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if not isinstance(node, ast.FunctionDef):
                continue
            named = {ast.unparse(decorator).split("(")[0].split(".")[-1] for decorator in node.decorator_list}
            if named & DECORATORS:
                arguments = len(node.args.args) + len(node.args.kwonlyargs) + (node.args.vararg is not None)
                shape = Shape(arguments, (node.end_lineno or node.lineno) - node.lineno + 1)
                yield f"{path.relative_to(source)}:{node.name}", shape


def test_none_has_too_many_arguments_or_lines() -> None:
    found = dict(compiled_functions(SOURCE))
    assert len(found) > 400
    large = {name for name, shape in found.items() if shape.arguments > MOST_ARGUMENTS or shape.lines > MOST_LINES}
    assert not large, {name: found[name] for name in large}


@pytest.mark.parametrize(
    "text",
    [
        "@kernel\ndef f(a, b, c, d, e, f, g, h, i, j): pass",
        "@kernel(inline='always')\ndef f(a, b, c, d, e, f, g, h, i, *j): pass",
        "class A:\n    @jit.phase\n    def f(a):" + "\n        pass" * 80,
    ],
)
def test_the_check_finds(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.py").write_text(text)
    [(_, shape)] = compiled_functions(tmp_path)
    assert shape.arguments > MOST_ARGUMENTS or shape.lines > MOST_LINES
