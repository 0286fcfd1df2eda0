"""Addresses that are of no one host in the public network: what IANA's registries of special-purpose addresses list,
what the standards have deprecated, and the metadata services of clouds at addresses that look like others.

The list is explicit, so that it is the same under every version of Python, and a network that is in none of its lines
is public on purpose. Of several lines that an address is in, the first counts: metadata services stand in front of the
private networks that some of them lie in.
"""

from __future__ import annotations

import ipaddress
from typing import Literal, NamedTuple, Union

Address = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
Opened = Literal["never", "loopback", "private"]  # by which part of a Reach


class Special(NamedTuple):
    network: Network
    what: str  # "... is <what>"
    opened: Opened


METADATA = "the metadata service of a cloud"
_LISTED: list[tuple[Opened, str, str]] = [
    # Metadata and host services outside of link-local networks.
    ("never", METADATA, "168.63.129.16/32"),  # Azure
    ("never", METADATA, "192.0.0.192/32"),  # Oracle
    ("never", METADATA, "100.100.100.200/32"),  # Alibaba
    ("never", METADATA, "fd00:ec2::/32"),  # Amazon
    ("never", METADATA, "fd20:ce::/32"),  # Google
    ("never", METADATA, "fd00:c1::/32"),  # Oracle
    ("never", METADATA, "fd00:42::/32"),  # Scaleway
    ("never", METADATA, "fd00:a9fe:a9fe::/48"),  # Akamai
    # IPv4 (IANA IPv4 Special-Purpose Address Registry; multicast).
    ("never", "no address of a host (this network)", "0.0.0.0/8"),
    ("private", "in a private network", "10.0.0.0/8"),
    ("never", "in a provider's shared network", "100.64.0.0/10"),
    ("loopback", "this machine itself", "127.0.0.0/8"),
    ("never", "link-local", "169.254.0.0/16"),
    ("private", "in a private network", "172.16.0.0/12"),
    ("never", "kept for protocols", "192.0.0.0/24"),
    ("never", "for documentation", "192.0.2.0/24"),
    ("never", "kept for name servers of private networks (AS112)", "192.31.196.0/24"),
    ("never", "kept for multicast relays (AMT)", "192.52.193.0/24"),
    ("never", "kept for 6to4 relays", "192.88.99.0/24"),
    ("private", "in a private network", "192.168.0.0/16"),
    ("never", "kept for name servers of private networks (AS112)", "192.175.48.0/24"),
    ("never", "for benchmarks", "198.18.0.0/15"),
    ("never", "for documentation", "198.51.100.0/24"),
    ("never", "for documentation", "203.0.113.0/24"),
    ("never", "multicast", "224.0.0.0/4"),
    ("never", "reserved", "240.0.0.0/4"),
    # IPv6 (IANA IPv6 Special-Purpose Address Registry; forms that are deprecated; multicast).
    ("loopback", "this machine itself", "::1/128"),
    ("never", "no address of a host (unspecified)", "::/128"),
    ("never", "an IPv4 address in a deprecated form", "::/96"),
    ("never", "an IPv4 address in a form for translators", "::ffff:0:0:0/96"),
    ("never", "an address for the translators of one network", "64:ff9b:1::/48"),
    ("never", "discarded on its way", "100::/64"),
    ("never", "a dummy", "100:0:0:1::/64"),
    ("never", "kept for protocols (Teredo, ORCHID, benchmarks and others)", "2001::/23"),
    ("never", "for documentation", "2001:db8::/32"),
    ("never", "an IPv4 address in a deprecated form (6to4)", "2002::/16"),
    ("never", "kept for name servers of private networks (AS112)", "2620:4f:8000::/48"),
    ("never", "for documentation", "3fff::/20"),
    ("never", "kept for segment routing", "5f00::/16"),
    ("private", "in a private network", "fc00::/7"),
    ("never", "link-local", "fe80::/10"),
    ("never", "in a private network, of a deprecated kind (site-local)", "fec0::/10"),
    ("never", "multicast", "ff00::/8"),
]
SPECIAL = [Special(ipaddress.ip_network(network), what, opened) for opened, what, network in _LISTED]
PUBLIC_IPV6 = ipaddress.IPv6Network("2000::/3")  # all that was ever given to networks
NO_NETWORK = Special(ipaddress.IPv6Network("::/0"), "in no network that was given to anybody", "never")

_MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # the third quarter of an address that tunnels to the IPv4 address in the fourth


def embedded_ipv4(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that an IPv6 one leads to, where that is all it does or where both count (`is_wholly_ipv4`)."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address in _MAPPED or address in _NAT64 or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def is_wholly_ipv4(address: Address) -> bool:
    """Whether an address with an IPv4 one inside is nothing but another way to write that."""
    return address in _MAPPED or address in _NAT64


def find_special(address: Address) -> Special | None:
    """The line that an address is in; None: it is public."""
    for special in SPECIAL:
        if special.network.version == address.version and address in special.network:
            return special
    if isinstance(address, ipaddress.IPv6Address) and address not in PUBLIC_IPV6:
        return NO_NETWORK
    return None
