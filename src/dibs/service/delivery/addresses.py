"""Where webhooks may go. A person who may save a subscription must not reach what only the server can reach: its own
machine, its network, its cloud's metadata. So:

- a target is an http or https address without user or fragment, in ASCII as it goes over the wire;
- its name is resolved when a connection is made, all of its addresses must be public, and the connection is made to one
  of those that were looked at: a name that changes its mind in between changes nothing;
- redirects are not followed (webhook.py).

What is not public is listed in special_addresses.py. `Reach` loosens this: loopback for tests and development, private
networks for a service inside of one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from concurrent.futures import Executor
from dataclasses import dataclass
from urllib.parse import urlsplit

from dibs.errors import ArgumentError, DibsError, show
from dibs.service.delivery.special_addresses import Address, embedded_ipv4, find_special, is_wholly_ipv4

PRINTABLE = re.compile(r"[!-~]+\Z")
LONGEST = 2_000  # characters of a target


class Unreachable(DibsError):
    """A webhook cannot or may not be sent to this address."""


@dataclass(frozen=True)
class Reach:
    """Which addresses webhooks may go to, beside public ones."""

    loopback: bool = False
    private: bool = False  # networks of one's own (10.0.0.0/8, 192.168.0.0/16, fc00::/7...); never metadata services


@dataclass(frozen=True)
class Target:
    """An address of a webhook, taken apart."""

    secure: bool
    host: str  # as it is resolved, and as a certificate must name it
    port: int
    path: str  # with its query

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def parse_target(target: str) -> Target:
    """Raises ArgumentError."""
    if not isinstance(target, str) or len(target) > LONGEST or not PRINTABLE.match(target):
        expected = f"an address of at most {LONGEST:,} characters of ASCII without spaces (encode others as %..)"
        raise ArgumentError(f"the target of a webhook must be {expected}, not {show(target)}")
    try:
        parts = urlsplit(target)
        port = parts.port
    except ValueError as e:
        raise ArgumentError(f"the target of a webhook is no address ({e}): {show(target)}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "\\" in target:
        raise ArgumentError(
            f"the target of a webhook must begin with https:// or http:// and a host, not {show(target)}"
        )
    if parts.username is not None or parts.password is not None:
        raise ArgumentError("the target of a webhook has no user and password: deliveries are signed instead")
    if parts.fragment:
        raise ArgumentError(f"the target of a webhook has no fragment (#{parts.fragment[:20]}): leave it out")
    if port == 0:
        raise ArgumentError("the port of a webhook is from 1 to 65535")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(secure, parts.hostname, port or (443 if secure else 80), path)


def check_address(address: Address, reach: Reach) -> str:
    """Why a webhook may not go there; "" if it may."""
    inner = embedded_ipv4(address)
    if inner is not None:
        refusal = check_address(inner, reach)
        if refusal or is_wholly_ipv4(address):
            return refusal
    special = find_special(address)
    if special is None or (special.opened != "never" and getattr(reach, special.opened)):
        return ""
    return f"{address} is {special.what}"


async def resolve(target: Target, reach: Reach, executor: Executor) -> list[str]:
    """The addresses of a target, all of which may be connected to. Raises Unreachable."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.run_in_executor(
            executor, lambda: socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        )
    except (OSError, UnicodeError) as e:
        raise Unreachable(f"{target.host} cannot be resolved: {e}") from None
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    for address in addresses:
        refusal = check_address(ipaddress.ip_address(address.partition("%")[0]), reach)
        if refusal:
            raise Unreachable(f"webhooks may not go to {target.host}: {refusal}")
    if not addresses:
        raise Unreachable(f"{target.host} has no address")
    return addresses


def check_target(target: str, reach: Reach) -> Target:
    """That a webhook may go to this target, as far as is known without resolving its name. Raises ArgumentError."""
    parsed = parse_target(target)
    try:
        address = ipaddress.ip_address(parsed.host)
    except ValueError:
        known = {"localhost": ipaddress.ip_address("127.0.0.1")}.get(parsed.host.rstrip(".").lower())
        if known is None:
            return parsed
        address = known
    refusal = check_address(address, reach)
    if refusal:
        raise ArgumentError(f"webhooks may not go to {parsed.host}: {refusal}")
    return parsed
