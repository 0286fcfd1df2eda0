"""The package is what its files say it is."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import dibs

ROOT = Path(__file__).parent.parent


def tracked_files() -> list[Path]:
    """What git would publish; without git (a source archive), everything but what .gitignore names as made here."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        return [ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).is_file()]
    made = {line.strip("/\n") for line in (ROOT / ".gitignore").read_text().splitlines()}
    return [p for p in ROOT.rglob("*") if p.is_file() and not made.intersection(p.relative_to(ROOT).parts)]


def newest_release() -> str:
    """The version of the newest heading of the change log that names one."""
    found = re.search(r"^## \[?v?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found, "CHANGELOG.md has no heading like `## 0.1.0`"
    return found[1]


def test_one_version_everywhere() -> None:
    declared = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert declared
    assert declared[1] == newest_release() == dibs.__version__ == importlib.metadata.version("dibs")


def test_every_public_name_is_there_and_documented() -> None:
    assert len(set(dibs.__all__)) == len(dibs.__all__)
    for name in dibs.__all__:
        thing = getattr(dibs, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), f"dibs.{name} has no docstring"
        if isinstance(thing, type):
            for member, value in vars(thing).items():
                if callable(value) and not member.startswith("_"):
                    assert (value.__doc__ or "").strip(), f"dibs.{name}.{member} has no docstring"


def test_the_wheel_ships_types_data_and_the_command(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        assert {"dibs/__init__.py", "dibs/py.typed", "dibs/spark/log4j2.properties"} <= names
        assert {name.split("/")[0] for name in names} == {"dibs", f"dibs-{dibs.__version__}.dist-info"}
        commands = archive.read(f"dibs-{dibs.__version__}.dist-info/entry_points.txt").decode()
        assert "dibs = dibs.cli:main" in commands


# Registries are used by package name through the ordinary clients; which host answers is the machine's business.
# Written in pieces, so that this file does not name one.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"), ("pythonhosted", "org"), ("crates", "io"), ("npmjs", "org"), ("npmjs", "com"),
        ("proxy", "golang", "org"), ("maven", "org"), ("maven", "apache", "org"), ("deb", "debian", "org"),
        ("anaconda", "org"), ("conda", "anaconda"), ("jfrog", "io"),
    ]
]  # fmt: skip


def test_no_registry_is_named() -> None:
    named = []
    for path in tracked_files():
        text = path.read_bytes().decode("utf-8", "replace").lower()
        named += [f"{path.relative_to(ROOT)}: {host}" for host in REGISTRY_HOSTS if host in text]
    assert tracked_files()
    assert named == []


def test_every_dependency_is_pinned() -> None:
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    needed = {re.split(r"[^\w.-]", line)[0].lower() for line in importlib.metadata.requires("dibs") or []} - {"dibs"}
    assert {"numpy", "pyspark", "pytest", "matplotlib"} <= needed
    assert needed <= pinned


def test_what_the_service_imports_is_declared() -> None:
    """Not only there because something else wants it. Before, h11 was."""
    text = (ROOT / "pyproject.toml").read_text()
    declared = {re.sub(r"[-_]", "", name.lower()) for name in re.findall(r'"([A-Za-z][\w-]*)(?:\[\w+\])?[><=]', text)}
    missing = {}
    for path in (ROOT / "src/dibs/service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in {each.split(".")[0] for each in names} - sys.stdlib_module_names - {"dibs", "__future__"}:
                if name.replace("_", "").lower() not in declared:
                    missing[name] = path.name
    assert not missing
