"""TLS by files: a certificate made here, a service behind it, its client and commands; and webhooks to a receiver that
has one."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from receivers import Receiver, wait_until
from serving import Running, running
from test_delivery import FAST, add, delivering, publish
from websockets.sync.client import connect

import dibs
from command_line import run
from dibs.client import ServiceError
from dibs.errors import DibsError
from dibs.service.delivery import Outbox
from dibs.service.settings import Settings


class Files(NamedTuple):
    certificate: Path
    key: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A certificate for this machine that nobody has signed but itself, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    found = Files(folder / "cert.pem", folder / "key.pem")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", names]
    command += ["-out", str(found.certificate), "-keyout", str(found.key)]
    subprocess.run(command, check=True, capture_output=True)
    return found


@pytest.fixture(scope="module")
def secured(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("secured") / "searches"
    with running(folder, tls_certificate=files.certificate, tls_key=files.key) as found:
        found.url = found.url.replace("http://", "https://")
        yield found


def trust(monkeypatch: pytest.MonkeyPatch, files: Files) -> None:
    """As a person does who has a certificate of their own."""
    monkeypatch.setenv("SSL_CERT_FILE", str(files.certificate))


def test_a_client_over_tls(secured: Running, files: Files) -> None:
    context = ssl.create_default_context(cafile=str(files.certificate))
    with dibs.Client(secured.url, secured.token(), verify=context) as client:
        client.put("alice", "price <= 580")
        assert client.match({"price": 550}) == ["alice"]
        assert [*client.match_batch([{"price": 550}, {"price": 600}])] == [["alice"], []]
    with dibs.Client(secured.url, secured.token()) as client, pytest.raises(ServiceError, match="CERTIFICATE_VERIFY"):
        client.match({"price": 550})
    plain = secured.url.replace("https://", "http://")
    with dibs.Client(plain, secured.token()) as client, pytest.raises(ServiceError, match="does not answer"):
        client.match({"price": 550})


def test_commands_over_tls(secured: Running, files: Files, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with dibs.Client(secured.url, secured.token(), verify=False) as client:
        client.put("alice", "price <= 580")
    monkeypatch.setenv("DIBS_TOKEN", secured.token())
    events = tmp_path / "events.jsonl"
    events.write_text('{"price": 550}\n')
    assert run("match", "--server", secured.url, "-e", str(events)).exit_code == 3
    trust(monkeypatch, files)
    done = run("match", "--server", secured.url, "-e", str(events))
    assert done.exit_code == 0 and done.stdout == '{"event":0,"subscriptions":["alice"]}\n'


def test_a_websocket_over_tls(secured: Running, files: Files) -> None:
    context = ssl.create_default_context(cafile=str(files.certificate))
    headers = {"Authorization": f"Bearer {secured.token()}"}
    url = "wss" + secured.url.removeprefix("https") + "/v1/stream"
    with connect(url, ssl=context, additional_headers=headers, proxy=None) as wire:
        wait_until(lambda: len(secured.service.tenants.find("main").feed) == 1)  # type: ignore[union-attr]
        assert secured.client().post("/v1/publish", json={"price": 1}).status_code == 202
        assert '"published"' in str(wire.recv(timeout=10))


def test_webhooks_over_tls(files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    with Outbox.open(tmp_path) as outbox, Receiver(tls=context) as receiver:
        assert receiver.url.startswith("https://")
        add(outbox, "ops", receiver)
        publish(outbox, 3, "ops")
        with delivering(tmp_path, FAST):  # nobody whom this machine trusts has signed it
            wait_until(lambda: "CERTIFICATE_VERIFY_FAILED" in outbox.stats()[0].last_error)
        assert receiver.taken == [] and outbox.stats()[0].waiting == 3
        trust(monkeypatch, files)
        with delivering(tmp_path, FAST):
            wait_until(lambda: len(receiver.taken) == 3)
        assert receiver.events == [{"n": n} for n in range(3)]
        assert len(set(receiver.ids)) == 3


def test_files_that_are_none_are_told(files: Files, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    with pytest.raises(DibsError, match=r"nothing\.pem.*--tls-cert"):
        Settings(tmp_path / "s", tls_certificate=nothing, tls_key=files.key)
    with pytest.raises(DibsError, match=r"PEM.*--tls-cert and --tls-key"):
        Settings(tmp_path / "s", tls_certificate=files.key, tls_key=files.certificate)
    with pytest.raises(DibsError, match="give both"):
        Settings(tmp_path / "s", tls_certificate=files.certificate)
    done = run("serve", str(tmp_path / "s"), "--tls-cert", str(nothing), "--tls-key", str(files.key))
    assert done.exit_code == 3 and "nothing.pem" in done.stderr
    assert not (tmp_path / "s").exists()
