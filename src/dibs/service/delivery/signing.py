"""How webhooks are signed: as Standard Webhooks are, so that receivers have libraries for it.

    webhook-id          the delivery's id, the same in every attempt
    webhook-timestamp   seconds since 1970, of this attempt
    webhook-signature   v1, and the HMAC-SHA256 of "id.timestamp.body" in base64

The key is the secret after "whsec_", in base64; of a secret without that, its bytes. A receiver compares signatures,
refuses timestamps that are minutes away from its own clock, and drops ids that it has seen:

    verify(secret, headers, body)   # the id; raises BadSignature
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import time
from collections.abc import Mapping

from dibs.errors import DibsError

TOLERANCE = 300.0  # seconds between the clocks of sender and receiver


class BadSignature(DibsError, ValueError):
    """A webhook was not signed with this secret, or long ago."""


def new_secret() -> str:
    return "whsec_" + base64.b64encode(os.urandom(32)).decode()


def sign(secret: str, delivery: str, timestamp: int, body: bytes) -> str:
    signed = f"{delivery}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_key(secret), signed, "sha256")).decode()


def verify(secret: str, headers: Mapping[str, str], body: bytes, now: float | None = None) -> str:
    """The id of a delivery that was signed with this secret, of late."""
    named = {name.lower(): value for name, value in headers.items()}
    try:
        delivery, timestamp = named["webhook-id"], int(named["webhook-timestamp"])
        signatures = named["webhook-signature"].split()
    except (KeyError, ValueError):
        raise BadSignature("the headers webhook-id, webhook-timestamp and webhook-signature are expected") from None
    if abs((time.time() if now is None else now) - timestamp) > TOLERANCE:
        raise BadSignature("it was signed too long ago, or the clocks differ")
    expected = sign(secret, delivery, timestamp, body)
    if not any(hmac.compare_digest(expected.encode(), one.encode()) for one in signatures):
        raise BadSignature("it was not signed with this secret")
    return delivery


def _key(secret: str) -> bytes:
    if secret.startswith("whsec_"):
        try:
            return base64.b64decode(secret[len("whsec_") :], validate=True)
        except binascii.Error:
            pass
    return secret.encode()
