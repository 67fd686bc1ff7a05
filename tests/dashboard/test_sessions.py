"""One-time codes, and expiring sessions with two secrets."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from onejob.api.access.authentication import Credentials
from onejob.dashboard.sessions import (
    CODE_SECONDS,
    IDLE_SECONDS,
    MAX_SESSION_SECONDS,
    Sessions,
    cookie_name,
    read_cookie,
    read_session_key,
    set_cookie,
)

ALICE = Credentials("token-of-alice")


@dataclass
class _Clock:
    seconds: float = 0.0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> _Clock:
    return _Clock()


@pytest.fixture
def sessions(clock: _Clock) -> Sessions:
    return Sessions(clock)


def test_a_code_opens_one_session(sessions: Sessions) -> None:
    code = sessions.new_code("alice", ALICE)
    opened = sessions.open(code)
    assert opened is not None
    assert sessions.find(opened.cookie, opened.key) == ALICE
    assert sessions.open(code) is None


def test_a_code_is_good_for_a_minute(sessions: Sessions, clock: _Clock) -> None:
    code = sessions.new_code("alice", ALICE)
    clock.seconds = CODE_SECONDS + 1
    assert sessions.open(code) is None


def test_neither_secret_is_enough_alone(sessions: Sessions) -> None:
    opened = sessions.open(sessions.new_code("alice", ALICE))
    assert opened is not None
    assert sessions.find(opened.cookie, "") is None
    assert sessions.find("", opened.key) is None
    assert sessions.find(opened.key, opened.cookie) is None


def test_a_session_ends_when_it_is_not_used(sessions: Sessions, clock: _Clock) -> None:
    opened = sessions.open(sessions.new_code("alice", ALICE))
    assert opened is not None
    clock.seconds = IDLE_SECONDS - 1
    assert sessions.find(opened.cookie, opened.key) == ALICE
    clock.seconds += IDLE_SECONDS + 1
    assert sessions.find(opened.cookie, opened.key) is None


def test_a_session_ends_after_half_a_day_however_much_it_is_used(
    sessions: Sessions, clock: _Clock
) -> None:
    opened = sessions.open(sessions.new_code("alice", ALICE))
    assert opened is not None
    while clock.seconds + IDLE_SECONDS / 2 < MAX_SESSION_SECONDS:
        clock.seconds += IDLE_SECONDS / 2
        assert sessions.find(opened.cookie, opened.key) == ALICE
    clock.seconds = MAX_SESSION_SECONDS + 1
    assert sessions.find(opened.cookie, opened.key) is None


def test_signing_out_ends_a_session(sessions: Sessions) -> None:
    opened = sessions.open(sessions.new_code("alice", ALICE))
    assert opened is not None
    sessions.close(opened.cookie, opened.key)
    assert sessions.find(opened.cookie, opened.key) is None


def test_the_oldest_codes_make_room(sessions: Sessions) -> None:
    codes = [sessions.new_code("alice", ALICE) for _ in range(101)]
    assert sessions.open(codes[0]) is None
    assert sessions.open(codes[-1]) is not None


def test_session_limit_applies_per_user(sessions: Sessions) -> None:
    opened = sessions.open(sessions.new_code("alice", ALICE))
    assert opened is not None
    code = sessions.new_code("alice", ALICE)
    others = Credentials("of-others")
    first, *more = [sessions.open(sessions.new_code("eve", others)) for _ in range(1100)]
    for _ in range(150):
        sessions.new_code("eve", others)
    assert sessions.find(opened.cookie, opened.key) == ALICE
    assert sessions.open(code) is not None
    assert first is not None
    assert sessions.find(first.cookie, first.key) is None
    assert more[-1] is not None
    assert sessions.find(more[-1].cookie, more[-1].key) == others


def test_session_limit_applies_across_service_accounts(sessions: Sessions) -> None:
    """A user who may edit a namespace can create any number of them."""
    opened = sessions.open(sessions.new_code("alice", ALICE))
    assert opened is not None
    code = sessions.new_code("alice", ALICE)
    for number in range(1100):
        account = f"system:serviceaccount:eves:robot-{number}"
        sessions.open(sessions.new_code(account, Credentials(f"of-{number}")))
    for number in range(150):
        account = f"system:serviceaccount:eves:robot-{number}"
        sessions.new_code(account, Credentials(f"of-{number}"))
    assert sessions.find(opened.cookie, opened.key) == ALICE
    assert sessions.open(code) is not None


def test_servers_on_one_host_do_not_share_a_cookie() -> None:
    one, other = {b"host": b"127.0.0.1:7443"}, {b"host": b"127.0.0.1:8443"}
    cookie = f"{cookie_name(one)}=a; {cookie_name(other)}=b".encode()
    assert read_cookie({**one, b"cookie": cookie}) == "a"
    assert read_cookie({**other, b"cookie": cookie}) == "b"
    assert cookie_name({b"host": b"jobs.example"}) == "__Host-onejob-443"


def test_the_cookie_is_for_our_page_alone() -> None:
    attributes = set_cookie("__Host-onejob-1", "s", 60).decode().split("; ")[1:]
    assert set(attributes) == {"Path=/", "Max-Age=60", "HttpOnly", "Secure", "SameSite=Strict"}


def test_key_of_a_session_is_read_from_the_header_or_the_subprotocols() -> None:
    assert read_session_key({}) is None
    assert read_session_key({b"x-onejob-session": b"k"}) == "k"
    offered = b"v5.channel.k8s.io, session.onejob.dev.a-B_9, v4.channel.k8s.io"
    assert read_session_key({b"sec-websocket-protocol": offered}) == "a-B_9"
    assert read_session_key({b"sec-websocket-protocol": b"v5.channel.k8s.io"}) is None
    both = {b"x-onejob-session": b"k", b"sec-websocket-protocol": offered}
    assert read_session_key(both) == "k"
