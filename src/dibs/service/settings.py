"""What a service may be told: where it listens, and what its tenants may do."""

from __future__ import annotations

import ipaddress
import re
import ssl
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dibs.errors import ArgumentError, show
from dibs.service.logs import Form, Level

MAIN = "main"  # the tenant whose matcher is the folder itself
ALL = "*"  # of a token: every tenant
TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
DATABASE = "service.sqlite"
HISTORY = 100_000  # published events that joins look at, where nothing else was said
TENANTS = "tenants"  # the folder of the other tenants' matchers


def check_tenant(name: object) -> str:
    """A tenant's name is the name of a folder, too."""
    if isinstance(name, str) and TENANT.match(name):
        return name
    expected = "up to 63 lower-case letters, digits, dashes and underscores, beginning with a letter or digit"
    raise ArgumentError(f"a tenant's name is {expected}, not {show(name)}")


def check_certificate(certificate: Path, key: Path) -> None:
    """That the two files are what TLS needs, before anything is made."""
    for path, option in ((certificate, "--tls-cert"), (key, "--tls-key")):
        if not path.is_file():
            raise ArgumentError(f"{path} is no file: give {option} a file in PEM form")
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ssl.SSLError) as e:
        raise ArgumentError(
            f"{certificate} and {key} are no certificate and its key in PEM form, without a password ({e}): look at "
            "what --tls-cert and --tls-key name"
        ) from None


@dataclass(frozen=True)
class Limits:
    """Of one tenant. 0: none."""

    subscriptions: int = 10_000_000
    rate: int = 0  # requests per second, over all its tokens; short bursts of as many
    body: int = 32 << 20  # bytes of a request
    expression: int = 100_000  # characters
    seconds: int = 30  # for a body to come, and for an answer to be found
    streams: int = 100  # that are open at once
    document: int = 1 << 20  # bytes of one event, subscription or question: one JSON document, or one line
    requests: int = 256  # under way at once, of each token
    bytes: int = 96 << 20  # of bodies and answers under way, of each token

    @classmethod
    def of(cls, value: dict[str, Any], default: Limits) -> Limits:
        """From JSON; what is not named is as the default says."""
        known = {f.name for f in fields(cls)}
        for name, number in value.items():
            if name not in known:
                raise ArgumentError(f"there is no limit {name!r}; there are: {', '.join(sorted(known))}")
            if not isinstance(number, int) or isinstance(number, bool) or number < 0:
                raise ArgumentError(f"the limit {name} must be a number from 0 (none) on, not {show(number)}")
        return replace(default, **value)

    def show(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class Settings:
    folder: Path
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1  # matching processes; 1: the writer does it all
    open: bool = False  # no tokens: everybody on this machine is the admin of the tenant "main"
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    limits: Limits = field(default_factory=Limits)  # of a tenant that has none of its own
    recent_events: int = 10_000  # kept for each tenant...
    recent_bytes: int = 32 << 20  # ...and at most so much of them
    types: dict[str, str] | None = None  # of attributes, for new tenants, and what main must have; None: the folder's
    history: int | None = None  # published events that joins see; None: what the folder says, or HISTORY
    gather_from: int | None = None  # single events that are matched as a batch; None: as many as make it worth it
    private_targets: bool = False  # webhooks may go to private networks and to this machine
    brokers: tuple[str, ...] = ()  # of Kafka, that topics may be of: host:port
    secrets_key: Path | None = None  # the file of the keys that webhooks' secrets are encrypted with
    threads: int | None = None  # of a batch
    max_connections: int = 2_000  # of each process that listens
    max_bytes: int = 512 << 20  # of bodies and answers under way in a process
    max_streams: int = 1_000  # that are open in all
    stalled: float = 30.0  # seconds in which a client must take some of its answer
    log: Form = "text"  # or as JSON lines
    log_level: Level = "warning"  # info: each request, too
    deliver: bool = True  # by a process beside; else another one does, or nobody

    def __post_init__(self) -> None:
        if self.open and not self.is_loopback:
            raise ArgumentError(
                f"--open asks nobody for a token, so it is for loopback only, not for {self.host}: leave it out, and "
                "make tokens with dibs token create"
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ArgumentError("TLS needs two files: give both --tls-cert and --tls-key")
        if self.tls_certificate is not None and self.tls_key is not None:
            check_certificate(self.tls_certificate, self.tls_key)

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'s' * (self.tls_certificate is not None)}://{host}:{self.port}"

    def folder_of(self, tenant: str) -> Path:
        """Where the tenant's matcher lies. Matchers are apart, so that no tenant can meet another's subscriptions."""
        return self.folder if tenant == MAIN else self.folder / TENANTS / check_tenant(tenant)
