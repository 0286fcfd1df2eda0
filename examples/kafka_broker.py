"""A real Kafka broker on this machine, for trying out pipelines: one node, no ZooKeeper (KRaft), on loopback only.

    python examples/kafka_broker.py --topic events --topic matches --compacted subscriptions

It stays until Ctrl-C, and forgets everything then. Its jars, and those of Spark's Kafka connector, are fetched once by
Maven (`mvn` must be installed, and see a repository) into ~/.cache/dibs-kafka; --jars prints what Spark has to be given
as spark.jars.

Spark's connector for the very version of Spark that runs here may not be published yet: CONNECTOR names a set that was
tested with PySpark 4.3. Use the one of your version where there is one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dibs.java import ensure_java

BROKER = ("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1")
CONNECTOR = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.13.1",
)
PATIENCE = 60.0  # seconds for the broker to listen
SETTINGS = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class NoJars(Exception):
    """The jars are not here and cannot be fetched."""


def cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "dibs-kafka"


def jars(name: str, artifacts: tuple[str, ...], transitive: bool) -> list[Path]:
    """The jars of the artifacts, fetched if they are not here yet. transitive: with all that they need."""
    folder = cache() / "-".join([name, *(artifact.rsplit(":", 1)[1] for artifact in artifacts)])
    if not folder.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise NoJars(f"{folder} is not there, and there is no `mvn` to fetch it with")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            project = Path(partial) / "pom.xml"
            project.write_text(_project(artifacts, transitive))
            command = [maven, "-B", "-q", "-f", str(project), "dependency:copy-dependencies"]
            command.append(f"-DoutputDirectory={partial}/jars")
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
            if done.returncode:
                said = (done.stdout + done.stderr).strip().splitlines()
                raise NoJars(f"Maven cannot fetch {', '.join(artifacts)}: {said[0] if said else 'no reason given'}")
            os.replace(Path(partial) / "jars", folder)
    return sorted(folder.glob("*.jar"))


def connector() -> str:
    """What Spark must be given as spark.jars."""
    return ",".join(map(str, jars("connector", CONNECTOR, transitive=False)))


def _project(artifacts: tuple[str, ...], transitive: bool) -> str:
    everything = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    without = "" if transitive else everything
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>{without}</dependency>"
        for group, name, version in (artifact.split(":") for artifact in artifacts)
    )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>dibs</groupId><artifactId>jars</artifactId>"
        f"<version>1</version><dependencies>{wanted}</dependencies></project>"
    )


class Broker:
    def __init__(self, folder: Path, port: int | None = None) -> None:
        self._folder = folder
        self._path = os.pathsep.join(map(str, jars("broker", BROKER, transitive=True)))
        self._java = str(ensure_java() / "bin" / "java")
        self.port = port or _free_port()
        self.servers = f"127.0.0.1:{self.port}"
        settings = folder / "server.properties"
        settings.write_text(SETTINGS.format(port=self.port, controller=_free_port(), data=folder / "data"))
        identity = self._run("kafka.tools.StorageTool", "random-uuid").strip().splitlines()[-1]
        self._run("kafka.tools.StorageTool", "format", "--standalone", "-t", identity, "-c", str(settings))
        self._log = open(folder / "broker.log", "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            [self._java, "-Xmx512m", "-cp", self._path, "kafka.Kafka", str(settings)],
            stdout=self._log,
            stderr=self._log,
        )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _run(self, program: str, *arguments: str) -> str:
        command = [self._java, "-Xmx256m", "-cp", self._path, program, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(
                f"{program} {' '.join(arguments)} failed: {(done.stderr or done.stdout).strip()[-2000:]}"
            )
        return done.stdout

    def _wait(self) -> None:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self._process.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.2)
        raise RuntimeError(f"the broker does not listen: see {self._folder / 'broker.log'}")

    def create(self, topic: str, compacted: bool = False, partitions: int = 2) -> None:
        policy = ["--config", "cleanup.policy=compact"] if compacted else []
        where = ["--bootstrap-server", self.servers, "--topic", topic, "--partitions", str(partitions)]
        self._run("org.apache.kafka.tools.TopicCommand", "--create", *where, "--replication-factor", "1", *policy)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@contextmanager
def running(port: int | None = None) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="dibs-kafka-") as folder:
        broker = Broker(Path(folder), port)
        try:
            yield broker
        finally:
            broker.stop()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description="A Kafka broker on this machine, for trying out pipelines.")
    parser.add_argument("--port", type=int, help="where it listens (a free one)")
    parser.add_argument("--topic", action="append", default=[], help="a topic to make; may be given again")
    parser.add_argument("--compacted", action="append", default=[], help="the same, compacted by key")
    parser.add_argument("--jars", action="store_true", help="print the jars of Spark's connector, and end")
    arguments = parser.parse_args()
    try:
        if arguments.jars:
            print(connector())
            return
        with running(arguments.port) as broker:
            for topic in [*arguments.topic, *arguments.compacted]:
                broker.create(topic, topic in arguments.compacted)
            print(f"listening on {broker.servers}; Ctrl-C ends it", flush=True)
            signal.pause()
    except NoJars as error:
        sys.exit(f"kafka_broker: {error}")
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
