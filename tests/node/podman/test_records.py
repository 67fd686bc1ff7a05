"""Attempts as derived from the engine's records, also after a reboot."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from onejob.node.podman.records import Boot, Found, judge, read_containers, read_death
from onejob.node.runtime import AttemptRef, Ended, Lost, Started

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NEVER = datetime(1, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)
BOOT = Boot("now", NOON - timedelta(hours=1))
REF = AttemptRef("u", "c", 0)


def found(status: str = "exited", **facts: Any) -> Found:
    return Found(
        **{
            "name": "n", "ref": REF, "status": status, "code": 0, "oom_killed": False,
            "started_at": NOON, "finished_at": NOON + SECOND, "boot_id": "now",
            "message_policy": "File", "stop_signal": "", **facts,
        }
    )  # fmt: skip


@pytest.mark.parametrize("status", ["running", "paused", "stopping", "restarting"])
def test_living_container_counts_as_started(status: str) -> None:
    assert judge(found(status), BOOT, NOON) == Started(REF, NOON)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"code": 0}, ""),
        ({"code": 3}, ""),
        ({"code": 137, "oom_killed": True}, "OOMKilled"),
        ({"code": 0, "oom_killed": True}, ""),
        ({"code": 4, "status": "stopped"}, ""),
    ],
)
def test_ended_container_record_has_exit(facts: dict[str, Any], reason: str) -> None:
    event = judge(found(**facts), BOOT, NOON)
    assert isinstance(event, Ended)
    assert (event.exit.code, event.exit.reason) == (facts["code"], reason)
    assert (event.exit.started_at, event.exit.finished_at) == (NOON, NOON + SECOND)


BEFORE = BOOT.began_at - timedelta(minutes=5)


@pytest.mark.parametrize(
    ("finished_at", "lost"),
    [
        (BEFORE + SECOND, False),
        (NEVER, True),
        (BOOT.began_at + SECOND, True),
    ],
    ids=["ended before", "given no end by podman", "given an end by docker as it came up"],
)
def test_exit_code_before_reboot_counts_only_if_observed(finished_at: datetime, lost: bool) -> None:
    old = found(boot_id="before", started_at=BEFORE, finished_at=finished_at)
    assert isinstance(judge(old, BOOT, NOON), Lost) == lost


@pytest.mark.parametrize("status", ["removing", "dead", "unknown"])
def test_one_in_any_other_state_is_lost(status: str) -> None:
    assert judge(found(status), BOOT, NOON) == Lost(REF, NOON)


def inspected(name: str, labels: dict[str, str] | None) -> dict[str, Any]:
    return {
        "Name": name,
        "State": {
            "Status": "exited", "ExitCode": 3, "OOMKilled": True,
            "StartedAt": "2026-01-01T13:00:00.123456789+01:00",
            "FinishedAt": "0001-01-01T00:00:00Z",
        },
        "Config": {"Labels": labels},
    }  # fmt: skip


def test_inspect_output_of_both_engines_is_parsed() -> None:
    labels = {"onejob.dev/pod-uid": "u", "onejob.dev/container": "c", "onejob.dev/attempt": "4"}
    document = [inspected("a", labels), inspected("/b", labels), inspected("x", None)]
    one, two = read_containers(msgspec.json.encode(document))
    assert (one.name, two.name) == ("a", "b")
    assert one.ref == AttemptRef("u", "c", 4)
    assert (one.code, one.oom_killed) == (3, True)
    assert one.started_at.replace(microsecond=0) == NOON
    assert read_containers(b"\n") == []


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (b'{"Name":"a","Status":"died"}\n', "a"),
        (b'{"status":"die","Actor":{"ID":"1","Attributes":{"name":"a"}}}\n', "a"),
        (b"no json\n", ""),
    ],
)
def test_events_name_the_container(line: bytes, name: str) -> None:
    assert read_death(line) == name
