"""What a service keeps can be read by its user alone; secrets of webhooks are encrypted where a key is given."""

from __future__ import annotations

import base64
import logging
import os
import sqlite3
import stat
from pathlib import Path

import httpx
import pytest
from receivers import Receiver, wait_until
from serving import Processes, running

from dibs.errors import ArgumentError
from dibs.service.delivery import Destination, MatchedDestination, Outbox
from dibs.service.delivery.schema import FILE
from dibs.service.delivery.sealing import SealedError, Sealing
from dibs.service.delivery.sending import Sending


def open_to_others(folder: Path) -> list[str]:
    """All that has a right for group or others."""
    found = [folder, *folder.rglob("*")]
    return [f"{path} {stat.filemode(path.stat().st_mode)}" for path in found if path.stat().st_mode & 0o077]


def new_key(path: Path, *more: str) -> str:
    key = base64.b64encode(os.urandom(32)).decode()
    path.write_text("\n".join((key, *more)) + "\n")
    path.chmod(0o600)
    return key


def bytes_of(folder: Path) -> bytes:
    """Of the outbox, with its log."""
    return b"".join(path.read_bytes() for path in folder.glob(f"{FILE}*"))


def sealing(path: Path) -> Sealing:
    return Sealing.of_file(path)


def test_as_it_is_started(tmp_path: Path) -> None:
    """Everything that `dibs serve` makes, and what its deliverer signs with a secret that is nowhere to be read."""
    folder, key = tmp_path / "searches", tmp_path / "secrets.key"
    new_key(key)
    options = ("--private-targets", "--secrets-key", str(key))
    with Receiver() as receiver, Processes(folder, *options) as service:
        headers = {"Authorization": f"Bearer {service.token}"}
        with httpx.Client(base_url=service.url, headers=headers, timeout=30) as client:
            made = client.put("/v1/destinations/ops", json={"kind": "webhook", "target": receiver.url})
            receiver.secret = made.json()["secret"]
            saved = {"expression": "a = 1", "destination": "ops"}
            assert client.put("/v1/subscriptions/s", json=saved).is_success
            assert client.post("/v1/publish", json={"a": 1}).json()["deliveries"] == 1
            wait_until(lambda: receiver.taken)
        assert receiver.wrong == []
        assert open_to_others(folder) == []
        assert receiver.secret.encode() not in bytes_of(folder)
    assert open_to_others(folder) == []
    assert not any("other users" in line for line in service.said)


def test_a_folder_that_others_could_read_is_closed_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "s"
    with running(folder):
        pass
    (folder / "tenants" / "acme").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("not of the service")
    (folder / "link").symlink_to(elsewhere)
    caplog.clear()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    with caplog.at_level(logging.WARNING, "dibs.service"), running(folder):
        found = [path for path in (folder, *folder.rglob("*")) if path.name != "link"]
        for path in found:
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        assert len(found) > 5
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
    [said] = [record.getMessage() for record in caplog.records if "other users" in record.getMessage()]
    assert str(folder) in said


def test_an_outbox_is_closed_from_its_first_byte(tmp_path: Path) -> None:
    with Outbox.open(tmp_path) as outbox:
        outbox.put_destination(Destination("ops", "webhook", "https://example.org/"))
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob(f"{FILE}*")}
    assert modes == {0o600}


def secret_of(folder: Path, seal: Sealing) -> str:
    """As the deliverer sees it."""
    with Outbox.open(folder, sealing=seal) as outbox:
        outbox.enqueue(b"{}", [MatchedDestination("s", "ops")])
        [lane], _ = Sending(outbox).lanes()
        return lane.destination.secret


def test_secrets_are_encrypted_when_a_key_is_given_and_keys_can_be_replaced(tmp_path: Path) -> None:
    first, second = tmp_path / "first.key", tmp_path / "second.key"
    old = new_key(first)
    new_key(second, old)
    with Outbox.open(tmp_path) as outbox:
        plain = outbox.put_destination(Destination("ops", "webhook", "https://example.org/")).secret
        assert plain.encode() in bytes_of(tmp_path)
    assert secret_of(tmp_path, sealing(first)) == plain
    assert plain.encode() not in bytes_of(tmp_path)
    stored = sqlite3.connect(tmp_path / FILE).execute("SELECT secret FROM destinations").fetchall()
    assert secret_of(tmp_path, sealing(second)) == plain  # with both keys: encrypted anew with the first line
    assert sqlite3.connect(tmp_path / FILE).execute("SELECT secret FROM destinations").fetchall() != stored
    with pytest.raises(SealedError, match="none of the keys"):
        secret_of(tmp_path, sealing(first))
    with pytest.raises(SealedError, match="give the file of their key"):
        secret_of(tmp_path, Sealing())
    new_key(first)
    with pytest.raises(SealedError, match="none of the keys"):
        secret_of(tmp_path, sealing(first))


def test_a_secret_stays_when_its_destination_is_changed(tmp_path: Path) -> None:
    key = tmp_path / "a.key"
    new_key(key)
    with Outbox.open(tmp_path, sealing=sealing(key)) as outbox:
        made = outbox.put_destination(Destination("ops", "webhook", "https://example.org/"))
        changed = outbox.put_destination(Destination("ops", "webhook", "https://example.org/other"))
        assert changed.secret == made.secret
        given = outbox.put_destination(Destination("ops", "webhook", "https://example.org/", secret="of mine"))
        assert given.secret == "of mine"
        assert made.secret.encode() not in bytes_of(tmp_path) and b"of mine" not in bytes_of(tmp_path)
    assert secret_of(tmp_path, sealing(key)) == "of mine"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no key: make one with openssl rand -base64 32"),
        ("short\n", "line 1: a key is 32 bytes in base64"),
        (base64.b64encode(bytes(range(32))).decode() + "\nnot base64!\n", "line 2: a key is 32 bytes"),
        (base64.b64encode(b"x" * 31).decode(), "line 1: a key is 32 bytes"),
        ("ä" * 43, "cannot be read"),
    ],
)
def test_keys_that_are_none(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.key"
    path.write_text(text, "utf-8")
    with pytest.raises(ArgumentError, match=message):
        Sealing.of_file(path)
    with pytest.raises(ArgumentError, match="cannot be read"):
        Sealing.of_file(tmp_path / "missing.key")


def test_a_key_that_others_can_read_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "a.key"
    new_key(path)
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING, "dibs.service"):
        assert Sealing.of_file(path)
    assert f"chmod 600 {path}" in caplog.text
