"""The command as a process: how it starts, and its manners in a pipe."""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pyarrow.csv
import pytest

import dibs
from command_line import DIBS, ENVIRONMENT, run


def test_help_teaches_and_starts_fast() -> None:
    code = (
        "import sys, types\n"
        "package = sys.modules['dibs'] = types.ModuleType('dibs')\n"  # what the package itself imports is its matter
        f"package.__path__ = [{str(Path(dibs.__file__).parent)!r}]\n"
        "import dibs.cli\n"
        "from typer.testing import CliRunner\n"
        "for command in ' match explain validate compile generate backtest catalog'.split(' '):\n"
        "    result = CliRunner().invoke(dibs.cli.app, [command, '--help'] if command else ['--help'])\n"
        "    assert result.exit_code == 0 and 'dibs ' in result.stdout, result\n"
        "heavy = {'numba', 'numpy', 'pyarrow', 'pyspark', 'sqlglot'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Exit codes:" in run("--help").stdout


def test_nothing_is_imported_before_interrupts_are_caught() -> None:
    """Python itself has imported os and sys."""
    code = "import sys; before = set(sys.modules); import dibs.cli; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.stdout == "['__future__', 'dibs', 'dibs.cli']\n", done.stderr


def test_version() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("dibs 0.")


def test_a_closed_pipe_is_no_error(subs: Path, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_bytes(b'{"price":15}\n' * 200_000)
    process = subprocess.Popen(
        [*DIBS, "match", "-s", str(subs), "-e", str(tmp_path / "events.jsonl")],
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b'{"event":0,"subscriptions":["bob","carol"]}\n'
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


def test_lines_are_answered_as_they_come_and_interrupting_is_quiet(subs: Path) -> None:
    process = subprocess.Popen(
        [*DIBS, "match", "-s", str(subs)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    for event, price in enumerate((15, 600)):
        process.stdin.write(f'{{"price":{price}}}\n'.encode())
        process.stdin.flush()
        assert orjson.loads(process.stdout.readline())["event"] == event
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert process.stderr.read() == b""
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


@pytest.mark.parametrize("arguments", [["--help"], ["validate", *["a ="] * 3_000], ["match", "--help"]])
def test_any_command_may_be_read_in_part(arguments: list[str]) -> None:
    process = subprocess.Popen([*DIBS, *arguments], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # before there is anything to read
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, b"Traceback" in errors, b"Exception" in errors) == (0, False, False), errors


def test_problems_that_nobody_reads(tmp_path: Path) -> None:
    process = subprocess.Popen([*DIBS, "match", "-s", "missing.jsonl"], env=ENVIRONMENT, stderr=subprocess.PIPE)
    assert process.stderr is not None
    process.stderr.close()
    assert process.wait(60) == 3


def test_closed_input_and_output(subs: Path, products: Path, tmp_path: Path) -> None:
    command = shlex.join([*DIBS, "match", "-s", str(subs)])
    for rest, message in (
        (f"-e {products} >&-", "standard output is closed: there is nowhere to write to"),
        ("<&-", "standard input is closed: give the file's name"),
    ):
        done = subprocess.run(f"{command} {rest}", shell=True, env=ENVIRONMENT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (3, f"dibs: {message}\n")
    rest = f"-e {products} -o {tmp_path / 'out.jsonl'} >&- <&-"
    assert subprocess.run(f"{command} {rest}", shell=True, env=ENVIRONMENT).returncode == 0
    assert (tmp_path / "out.jsonl").stat().st_size


def test_a_csv_file_that_is_none_ends_in_order(products: Path, tmp_path: Path) -> None:
    (tmp_path / "subs.csv").touch()
    for _ in range(4):  # a thread of Arrow that was still reading took the process down, in one run of seven
        command = [*DIBS, "match", "-s", str(tmp_path / "subs.csv"), "-e", str(products)]
        done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)
        assert done.returncode == 3, done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_arrow_is_not_given_python_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []
    open_csv = pyarrow.csv.open_csv
    monkeypatch.setattr(pyarrow.csv, "open_csv", lambda file, *rest: given.append(file) or open_csv(file, *rest))
    run("match", "-s", "-", "-e", tmp_path / "e.csv", stdin='{"id": 1, "expression": "TRUE"}')
    run("match", "-s", tmp_path / "s.csv", "--format", "csv", stdin="a\n1\n")
    (tmp_path / "s.csv").write_text("id,expression\n1,TRUE\n")
    run("match", "-s", tmp_path / "s.csv", "--format", "csv", stdin="a\n1\n")
    run("backtest", "a = 1", "--format", "csv", stdin="a\n1\n")
    assert len(given) >= 7
    assert {type(file) for file in given} == {str}


@pytest.mark.parametrize("delay", [0.1, 0.3, 0.6, 1.0])
def test_interrupting_is_quiet_while_the_command_starts(delay: float, subs: Path) -> None:
    program = "from dibs.cli import main; print('begun', flush=True); main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "match", "-s", str(subs)],
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, b"")


DROPS_INTERRUPTS = """
import time
end = time.monotonic() + 1.0
while time.monotonic() < end:
    try:
        time.sleep(0.01)
    except BaseException:  # as extension modules do
        pass
"""
IMPORTS_IT = """
import os, signal, threading
from dibs.cli.importing import import_undisturbed
import_undisturbed()
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    import drops_interrupts
except KeyboardInterrupt:
    print("interrupted")
"""


def test_no_import_drops_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "drops_interrupts.py").write_text(DROPS_INTERRUPTS)
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS_IT], env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)
