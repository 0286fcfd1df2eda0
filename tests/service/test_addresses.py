"""Where webhooks may go, address by address. Nothing is sent, and no name is asked for."""

from __future__ import annotations

import ipaddress

import pytest

from dibs.errors import ArgumentError
from dibs.service.delivery.addresses import Reach, check_address, check_target
from dibs.service.delivery.special_addresses import SPECIAL, find_special

PUBLIC, PRIVATE, LOOPBACK, BOTH = Reach(), Reach(private=True), Reach(loopback=True), Reach(True, True)

NEVER = [
    # metadata and host services: Azure, Oracle, Alibaba, Amazon, Google, Tencent, Scaleway, Akamai, OpenStack
    *("168.63.129.16", "192.0.0.192", "100.100.100.200", "169.254.169.254", "169.254.170.2", "169.254.0.23"),
    *("fd00:ec2::254", "fd00:ec2::253", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"),
    *("fd00:a9fe:a9fe::1", "fe80::a9fe:a9fe", "169.254.42.42", "169.254.169.123"),
    # IANA's registry for IPv4, the first and the last address of each block
    *("0.0.0.0", "0.255.255.255", "100.64.0.0", "100.127.255.255", "169.254.0.0", "169.254.255.255"),
    *("192.0.0.0", "192.0.0.8", "192.0.0.9", "192.0.0.10", "192.0.0.170", "192.0.0.171", "192.0.0.255"),
    *("192.0.2.0", "192.0.2.255", "192.31.196.0", "192.31.196.255", "192.52.193.0", "192.52.193.255"),
    *("192.88.99.0", "192.88.99.255", "192.175.48.0", "192.175.48.255", "198.18.0.0", "198.19.255.255"),
    *("198.51.100.0", "198.51.100.255", "203.0.113.0", "203.0.113.255", "224.0.0.0", "239.255.255.255"),
    *("240.0.0.0", "255.255.255.254", "255.255.255.255"),
    # and for IPv6
    *("::", "100::", "100::ffff:ffff:ffff:ffff", "100:0:0:1::", "100:0:0:1:ffff:ffff:ffff:ffff"),
    *("64:ff9b:1::", "64:ff9b:1::808:808", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    *("2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "2001:1::1", "2001:1::2", "2001:1::3", "2001:2::1"),
    *("2001:3::1", "2001:4:112::1", "2001:10::1", "2001:20::1", "2001:30::1", "2001:1ff:ffff::1"),
    *("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "2002::", "2002:808:808::1", "2002:ffff::"),
    *("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff", "3fff::", "3fff:fff:ffff::1", "5f00::1"),
    *("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fec0::", "fec0::1", "feff::1", "ff00::", "ff02::1"),
    # never given to anybody
    *("200::1", "400::1", "1000::1", "1fff::1", "4000::1", "8000::1", "fb00::1", "fe00::1", "fe7f::1"),
    # IPv4 inside of IPv6: mapped, translated, compatible, tunnelled
    *("::ffff:169.254.169.254", "::ffff:192.0.0.192", "::ffff:168.63.129.16", "::ffff:100.64.0.1", "::ffff:0.0.0.0"),
    *("64:ff9b::169.254.169.254", "64:ff9b::192.0.0.192", "64:ff9b::168.63.129.16", "::ffff:0:8.8.8.8"),
    *("::ffff:0:127.0.0.1", "::8.8.8.8", "::127.0.0.1", "::169.254.169.254", "2002:a9fe:a9fe::1"),
    *("2a00:1450::5efe:169.254.169.254", "2a00:1450::200:5efe:192.0.0.192", "fd12::5efe:169.254.169.254"),
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]
OF_PRIVATE = [
    *("10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0", "192.168.255.255"),
    *("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "fd00:ec1:ffff::1", "fd00:ec3::1"),
    *("::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "::ffff:192.168.1.1", "2a00:1450::5efe:10.0.0.1"),
]
OF_LOOPBACK = [
    *("127.0.0.0", "127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1", "64:ff9b::127.0.0.1"),
    "2a00:1450::5efe:127.0.0.1",
]
FREE = [
    # just beside the blocks above
    *("1.0.0.0", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0"),
    *("168.63.129.15", "168.63.129.17", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0"),
    *("191.255.255.255", "192.0.1.0", "192.0.3.0", "192.31.195.255", "192.31.197.0", "192.52.192.255"),
    *("192.88.98.255", "192.88.100.0", "192.167.255.255", "192.169.0.0", "192.175.47.255", "192.175.49.0"),
    *("198.17.255.255", "198.20.0.0", "198.51.99.255", "198.51.101.0", "203.0.112.255", "203.0.114.0"),
    *("223.255.255.255", "8.8.8.8", "93.184.216.34", "2000::", "2001:200::1", "2001:db7:ffff::1", "2001:db9::1"),
    *("2003::1", "2606:4700::1111", "2620:4f:7fff::1", "2620:4f:8001::1", "2a00:1450:4001::200e", "3ffe:ffff::1"),
    *("3fff:1000::1", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8", "2a00:1450::5efe:8.8.8.8"),
]


def refused(address: str, reach: Reach) -> bool:
    return check_address(ipaddress.ip_address(address), reach) != ""


@pytest.fixture(autouse=True)
def _without_pythons_opinion(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Python says of an address differs between its versions: nobody may ask."""

    def ask(_: object) -> bool:
        raise AssertionError("Python was asked what it thinks of an address")

    names = ("is_private", "is_global", "is_link_local", "is_multicast", "is_reserved", "is_unspecified")
    for name in (*names, "is_loopback"):
        for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
            monkeypatch.setattr(kind, name, property(ask))
    for name in ("is_site_local", "ipv4_mapped", "sixtofour", "teredo"):
        monkeypatch.setattr(ipaddress.IPv6Address, name, property(ask))


@pytest.mark.parametrize("address", NEVER)
def test_never(address: str) -> None:
    assert all(refused(address, reach) for reach in (PUBLIC, PRIVATE, LOOPBACK, BOTH))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ArgumentError, match="webhooks may not go to"):
        check_target(f"http://{host}:8080/latest/meta-data", BOTH)


@pytest.mark.parametrize("address", OF_PRIVATE)
def test_with_private_targets_only(address: str) -> None:
    assert refused(address, PUBLIC) and refused(address, LOOPBACK)
    assert not refused(address, PRIVATE) and not refused(address, BOTH)


@pytest.mark.parametrize("address", OF_LOOPBACK)
def test_with_loopback_only(address: str) -> None:
    assert refused(address, PUBLIC) and refused(address, PRIVATE)
    assert not refused(address, LOOPBACK) and not refused(address, BOTH)


@pytest.mark.parametrize("address", FREE)
def test_public(address: str) -> None:
    assert not any(refused(address, reach) for reach in (PUBLIC, PRIVATE, LOOPBACK, BOTH))


@pytest.mark.parametrize("special", SPECIAL, ids=lambda special: str(special.network))
def test_each_line_of_the_list_counts(special: object) -> None:
    """From its first to its last address; and none is behind a wider one that stands before it."""
    network, _, opened = special  # type: ignore[misc]
    for address in (network[0], network[-1], network[network.num_addresses // 2]):
        found = find_special(address)
        assert found is not None and (found.opened == opened or found.network.subnet_of(network))
    assert any(find_special(address) == special for address in (network[0], network[-1]))
