"""A cluster of Spark on this machine: a master and workers, each a process of its own with folders of its own.

    python examples/cluster.py                      starts it, says its address, and ends with Ctrl-C
    python examples/cluster.py --demo               runs the demo on it
    python examples/cluster.py --demo --apart       the same, and workers do not see the driver's index (root only)

Machines share no temporary folder and no memory, so nor do these workers. With `--apart` they do not see the folder of
snapshots either, as if it lay on the driver's own disk: subscriptions then come by broadcast.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import pyspark

from dibs.java import ensure_java

HOST = "127.0.0.1"
MASTER, WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"
HIDE = 'mount -t tmpfs none "$1" && shift && exec "$@"'  # in a mount namespace of its own: only its processes see it


class Cluster:
    """folder: what the processes write. hidden: a folder that workers find empty, whatever is in it."""

    def __init__(self, folder: Path, workers: int = 2, memory: str = "1g", hidden: Path | None = None) -> None:
        self._folder, self._memory, self._hidden = folder, memory, hidden
        self._wanted = workers
        self.workers: list[subprocess.Popen[bytes]] = []
        self._port, self._web = free_port(), free_port()
        self.master = f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Cluster:
        ensure_java()
        places = ["--host", HOST, "--port", str(self._port), "--webui-port", str(self._web)]
        self._process = self._start("master", [MASTER, *places])
        try:
            self.wait_for(0)
            for _ in range(self._wanted):
                self.add_worker()
            self.wait_for(self._wanted)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Workers end their executors when they are asked to end."""
        for process in [*self.workers, self._process]:
            process.terminate()
        for process in [*self.workers, self._process]:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def wait(self) -> None:
        """Until the master ends."""
        self._process.wait()

    def add_worker(self) -> subprocess.Popen[bytes]:
        """With one core. Its process id is that of its JVM, whose children are the executors."""
        name = f"worker-{len(self.workers)}"
        own = self._folder / name
        asked = [WORKER, "--host", HOST, "--cores", "1", "--memory", self._memory, "--webui-port", "0"]
        self.workers.append(self._start(name, [*asked, "--work-dir", str(own / "work"), self.master]))
        return self.workers[-1]

    def alive(self) -> int:
        """How many workers the master counts; -1: it does not answer yet."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._web}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError):
            return -1

    def wait_for(self, workers: int, seconds: float = 180) -> None:
        end = time.monotonic() + seconds
        while self.alive() < workers:
            if time.monotonic() > end or self._process.poll() is not None:
                logs = "\n".join(path.read_text()[-2_000:] for path in sorted(self._folder.glob("*.log")))
                raise RuntimeError(f"the cluster has {self.alive()} workers, expected {workers}:\n{logs}")
            time.sleep(0.1)

    def _start(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        own = self._folder / name
        for folder in ("tmp", "work"):  # of this process alone
            (own / folder).mkdir(parents=True)
        home = Path(pyspark.__file__).parent
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_DIRS": str(own / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "PYSPARK_PYTHON": sys.executable,
            "TMPDIR": str(own / "tmp"),
        }
        command = [str(home / "bin" / "spark-class"), *command]
        if self._hidden is not None and name != "master":
            command = ["unshare", "--mount", "sh", "-c", HIDE, "sh", str(self._hidden), *command]
        with open(self._folder / f"{name}.log", "wb") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=log)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def run_demo(cluster: Cluster, arguments: argparse.Namespace, state: Path | None) -> None:
    command: list[Any] = [sys.executable, Path(__file__).with_name("shop_demo.py"), "--master", cluster.master]
    command += ["--subscriptions", str(arguments.subscriptions), "--events", str(arguments.events)]
    command += ["--out", arguments.out, *([] if state is None else ["--state", state])]
    subprocess.run(command, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2, help="workers with one core each (2)")
    parser.add_argument("--memory", default="1g", help="of a worker (1g)")
    parser.add_argument("--demo", action="store_true", help="run examples/shop_demo.py on it, and end")
    parser.add_argument("--apart", action="store_true", help="workers do not see the folder of snapshots")
    parser.add_argument("--subscriptions", type=int, default=100_000, help="of the demo")
    parser.add_argument("--events", type=int, default=20_000, help="of the demo")
    parser.add_argument("--out", type=Path, default=Path("out/shop-demo"), help="of the demo")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dibs-cluster-"))
    state = folder / "state" if arguments.apart else None
    if state is not None:
        state.mkdir()
    try:
        with Cluster(folder, arguments.workers, arguments.memory, state) as cluster:
            print(f"{cluster.master}: {arguments.workers} workers", flush=True)
            if arguments.demo:
                run_demo(cluster, arguments, state)
            else:
                cluster.wait()
    except KeyboardInterrupt:
        pass
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
