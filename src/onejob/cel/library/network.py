"""IP addresses and CIDR blocks."""

import ipaddress
import re
from typing import Any, TypeAlias

from onejob.cel.errors import EvaluationError
from onejob.cel.functions import Cost, Library
from onejob.cel.values import Opaque

LIBRARY = Library()

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_PREFIX = re.compile(r"(?:0|[1-9]\d{0,2})\Z", re.ASCII)
_BROADCAST = ipaddress.ip_address("255.255.255.255")
_MAX_ADDRESS_LENGTH = 64


class IP(Opaque):
    __slots__ = ("address",)
    type_name = "net.IP"

    def __init__(self, address: _Address) -> None:
        self.address = address

    def equals(self, other: Opaque) -> bool:
        return isinstance(other, IP) and self.address == other.address


class CIDR(Opaque):
    __slots__ = ("address", "length")
    type_name = "net.CIDR"

    def __init__(self, address: _Address, length: int) -> None:
        self.address = address
        self.length = length

    def equals(self, other: Opaque) -> bool:
        return (
            isinstance(other, CIDR)
            and self.address == other.address
            and self.length == other.length
        )

    def holds(self, address: _Address) -> bool:
        if address.version != self.address.version:
            return False
        shift = self.address.max_prefixlen - self.length
        return int(address) >> shift == int(self.address) >> shift


def _address(text: str, what: str) -> _Address:
    try:
        if len(text) > _MAX_ADDRESS_LENGTH:
            raise ValueError("too long")
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise EvaluationError(
            f"{what} parse error during conversion from string: "
            f'ParseAddr("{text[:_MAX_ADDRESS_LENGTH]}"): '
            "unable to parse IP"
        ) from error
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id:
            raise EvaluationError(f'IP address "{text}" with zone value is not allowed')
        if address.ipv4_mapped:
            raise EvaluationError(f'IPv4-mapped IPv6 address "{text}" is not allowed')
    return address


def parse_ip(text: str) -> IP:
    return IP(_address(text, f'IP Address "{text[:_MAX_ADDRESS_LENGTH]}"'))


def parse_cidr(text: str) -> CIDR:
    head, slash, tail = text.rpartition("/")
    address = _address(head if slash else text, "network address")
    if not slash or not _PREFIX.match(tail) or int(tail) > address.max_prefixlen:
        raise EvaluationError(
            "network address parse error during conversion from string: "
            f'netip.ParsePrefix("{text[:_MAX_ADDRESS_LENGTH]}"): bad bits after slash'
        )
    return CIDR(address, int(tail))


@LIBRARY.add("ip(string) -> IP", cost=Cost.TRAVERSE)
def ip(text: str) -> IP:
    return parse_ip(text)


@LIBRARY.add("isIP(string) -> bool", cost=Cost.TRAVERSE)
def is_ip(text: str) -> bool:
    try:
        parse_ip(text)
    except EvaluationError:
        return False
    return True


@LIBRARY.add("ip.isCanonical(string) -> bool", cost=Cost.TRAVERSE_TWICE)
def is_canonical(text: str) -> bool:
    return str(parse_ip(text).address) == text


@LIBRARY.add("string(IP) -> string")
def ip_to_string(value: IP) -> str:
    return str(value.address)


@LIBRARY.add("IP..family() -> int")
def family(value: IP) -> int:
    return value.address.version


@LIBRARY.add("IP..isUnspecified() -> bool")
def is_unspecified(value: IP) -> bool:
    return value.address.is_unspecified


@LIBRARY.add("IP..isLoopback() -> bool")
def is_loopback(value: IP) -> bool:
    return value.address.is_loopback


@LIBRARY.add("IP..isLinkLocalMulticast() -> bool")
def is_link_local_multicast(value: IP) -> bool:
    packed = value.address.packed
    if value.address.version == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


@LIBRARY.add("IP..isLinkLocalUnicast() -> bool")
def is_link_local_unicast(value: IP) -> bool:
    return value.address.is_link_local


@LIBRARY.add("IP..isGlobalUnicast() -> bool")
def is_global_unicast(value: IP) -> bool:
    address = value.address
    return not (
        address == _BROADCAST
        or address.is_unspecified
        or address.is_loopback
        or address.is_multicast
        or address.is_link_local
    )


@LIBRARY.add("cidr(string) -> CIDR", cost=Cost.TRAVERSE)
def cidr(text: str) -> CIDR:
    return parse_cidr(text)


@LIBRARY.add("isCIDR(string) -> bool", cost=Cost.TRAVERSE)
def is_cidr(text: str) -> bool:
    try:
        parse_cidr(text)
    except EvaluationError:
        return False
    return True


@LIBRARY.add("string(CIDR) -> string")
def cidr_to_string(value: CIDR) -> str:
    return f"{value.address}/{value.length}"


@LIBRARY.add("CIDR..containsIP(string) -> bool", "CIDR..containsIP(IP) -> bool", cost=Cost.SECOND)
def contains_ip(value: CIDR, other: Any) -> bool:
    found = parse_ip(other) if isinstance(other, str) else other
    return value.holds(found.address)


@LIBRARY.add(
    "CIDR..containsCIDR(string) -> bool", "CIDR..containsCIDR(CIDR) -> bool", cost=Cost.SECOND
)
def contains_cidr(value: CIDR, other: Any) -> bool:
    found = parse_cidr(other) if isinstance(other, str) else other
    return found.length >= value.length and value.holds(found.address)


@LIBRARY.add("CIDR..ip() -> IP")
def cidr_ip(value: CIDR) -> IP:
    return IP(value.address)


@LIBRARY.add("CIDR..prefixLength() -> int")
def prefix_length(value: CIDR) -> int:
    return value.length


@LIBRARY.add("CIDR..masked() -> CIDR")
def masked(value: CIDR) -> CIDR:
    shift = value.address.max_prefixlen - value.length
    return CIDR(type(value.address)(int(value.address) >> shift << shift), value.length)
