"""Secrets of destinations, encrypted at rest with a key that the operator gives (`--secrets-key FILE`).

The file has a key on each line: 32 random bytes in base64, as `openssl rand -base64 32` makes them. The first encrypts;
all of them decrypt, so that a key is replaced by putting a new one above it, starting the service (which encrypts all
secrets with the new one) and removing the old one. Fernet is the form: AES-128-CBC with an HMAC-SHA256.

In the database an encrypted secret is a BLOB and a plain one TEXT, so that neither can be taken for the other.
"""

from __future__ import annotations

import base64
import binascii
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Union

from dibs.errors import ArgumentError, DibsError

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

Stored = Union[str, bytes]
KEY_BYTES = 32
log = logging.getLogger("dibs.service")


class SealedError(DibsError):
    """A secret is encrypted, and there is no key for it."""


class Sealing:
    """Without keys it seals nothing, and cannot open what was sealed."""

    def __init__(self, keys: list[Fernet] | None = None):
        self._keys = keys or []
        self._known: dict[bytes, str] = {}  # what was opened; as many as there are destinations

    @classmethod
    def of_file(cls, path: str | os.PathLike[str] | None) -> Sealing:
        """Raises ArgumentError."""
        if path is None:
            return cls()
        try:
            from cryptography.fernet import Fernet
        except ImportError:
            raise ArgumentError("--secrets-key needs one more package: pip install 'dibs[serve]'") from None
        try:
            lines = Path(path).read_text("ascii").split()
            if os.stat(path).st_mode & 0o077:
                log.warning("%s can be read by other users of this machine: chmod 600 %s", path, path)
        except (OSError, UnicodeDecodeError) as e:
            raise ArgumentError(f"{path} cannot be read ({e}): give --secrets-key a file with a key") from None
        if not lines:
            raise ArgumentError(f"{path} has no key: make one with openssl rand -base64 {KEY_BYTES} > {path}")
        return cls([Fernet(_read_key(line, path, number)) for number, line in enumerate(lines, 1)])

    def __bool__(self) -> bool:
        return bool(self._keys)

    def seal(self, secret: str) -> Stored:
        return self._keys[0].encrypt(secret.encode()) if self._keys else secret

    def open(self, stored: Stored) -> str:
        """Raises SealedError."""
        if isinstance(stored, str):
            return stored
        found = self._known.get(stored)
        if found is None:
            found = self._known[stored] = self._open(stored)[0]
        return found

    def renewed(self, stored: Stored) -> Stored | None:
        """How it should be stored instead; None: as it is. Raises SealedError."""
        if isinstance(stored, str):
            return self.seal(stored) if self._keys else None
        secret, key = self._open(stored)
        return self.seal(secret) if key else None

    def _open(self, stored: bytes) -> tuple[str, int]:
        """The secret, and the number of the key that it was sealed with."""
        if not self._keys:
            raise SealedError("the secrets of destinations are encrypted: give the file of their key, --secrets-key")
        from cryptography.fernet import InvalidToken

        for number, key in enumerate(self._keys):
            with suppress(InvalidToken):
                return key.decrypt(stored).decode(), number
        raise SealedError("none of the keys that --secrets-key names has encrypted the secrets of the destinations")


def _read_key(line: str, path: str | os.PathLike[str], number: int) -> bytes:
    """As Fernet wants it; base64 comes in two alphabets."""
    try:
        key = base64.b64decode(line.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        expected = f"{KEY_BYTES} bytes in base64 (openssl rand -base64 {KEY_BYTES})"
        raise ArgumentError(f"{path}, line {number}: a key is {expected}")
    return base64.urlsafe_b64encode(key)
