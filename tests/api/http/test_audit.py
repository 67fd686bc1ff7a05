"""The audit log: what a whole server writes down of requests, and what its file survives."""

import asyncio
import errno
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from onejob.api.audit.log_file import AuditLog, CannotAudit, Rotation
from onejob.api.audit.settings import AuditSettings
from onejob.cli.errors import CommandError
from onejob.cli.main import cli
from tests.api.http.raw_requests import Requests, a_server, with_requests

_SECRET = "c2VjcmV0LXRleHQ="


def _recorded(
    folder: Path, test: Callable[[Requests], Any], *rules: dict[str, Any], **policy: Any
) -> list[dict[str, Any]]:
    """The events of what `test` does, without those of system pages."""
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **policy}
    (folder / "policy.yaml").write_text(json.dumps(document))
    log = folder / "audit.log"

    async def main() -> None:
        audit = AuditSettings(str(folder / "policy.yaml"), str(log))
        async with a_server(folder, audit=audit) as requests, asyncio.timeout(60):
            await test(requests)

    asyncio.run(main())
    assert log.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in log.read_text().splitlines()]


_SECRETS = "/api/v1/namespaces/default/secrets"


async def _make_secret(requests: Requests) -> None:
    await requests.ok("POST", _SECRETS, {"metadata": {"name": "s"}, "data": {"k": _SECRET}})
    await requests.get(f"{_SECRETS}/s")


def test_an_event_says_who_did_what_and_how_it_ended(tmp_path: Path) -> None:
    received, complete, *_ = _recorded(tmp_path, _make_secret, {"level": "Metadata"})
    assert received["stage"] == "RequestReceived"
    assert complete["stage"] == "ResponseComplete"
    assert complete["kind"] == "Event"
    assert complete["apiVersion"] == "audit.k8s.io/v1"
    assert complete["level"] == "Metadata"
    assert complete["verb"] == "create"
    assert complete["requestURI"] == _SECRETS
    assert "system:masters" in complete["user"]["groups"]
    assert complete["sourceIPs"] == ["127.0.0.1"]
    assert complete["objectRef"] == {
        "resource": "secrets", "namespace": "default", "apiVersion": "v1"
    }  # fmt: skip
    assert complete["responseStatus"] == {"metadata": {}, "code": 201}
    assert complete["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert complete["auditID"] == received["auditID"]
    for field in ("requestReceivedTimestamp", "stageTimestamp"):
        datetime.strptime(complete[field], "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("level", "request_object", "response_object"),
    [("Metadata", False, False), ("Request", True, False), ("RequestResponse", True, True)],
)
def test_levels_say_how_much(
    tmp_path: Path, level: str, request_object: bool, response_object: bool
) -> None:
    stages = ["RequestReceived"]
    made, read = _recorded(tmp_path, _make_secret, {"level": level}, omitStages=stages)
    assert ("requestObject" in made, "responseObject" in made) == (request_object, response_object)
    assert ("requestObject" in read, "responseObject" in read) == (False, response_object)
    text = (tmp_path / "audit.log").read_text()
    assert (_SECRET in text) is request_object


def test_rules_leave_out_what_nobody_wants(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        await requests.get("/healthz")
        await _make_secret(requests)
        await requests.get("/api/v1/namespaces/default/pods")

    events = _recorded(
        tmp_path,
        test,
        {"level": "None", "nonResourceURLs": ["/healthz*"]},
        {"level": "None", "resources": [{"group": "", "resources": ["secrets"]}]},
        {"level": "Metadata", "omitStages": ["RequestReceived"]},
    )
    assert [(event["verb"], event["objectRef"]["resource"]) for event in events] == [
        ("list", "pods")
    ]


def test_refusals_are_recorded_with_their_reason(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        wrong = {"Authorization": "Bearer nonsense"}
        assert (await requests("GET", "/api/v1/pods", headers=wrong))[0] == 401
        other = {"Impersonate-User": "bob"}
        assert (await requests("GET", "/api/v1/nodes", headers=other))[0] == 403
        assert (await requests("GET", f"{_SECRETS}/absent"))[0] == 404

    unknown, forbidden, missing = _recorded(
        tmp_path, test, {"level": "Metadata"}, omitStages=["RequestReceived"]
    )
    assert unknown["responseStatus"]["code"] == 401
    assert unknown["user"] == {}
    assert forbidden["impersonatedUser"]["username"] == "bob"
    assert forbidden["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert forbidden["responseStatus"]["reason"] == "Forbidden"
    assert missing["responseStatus"]["reason"] == "NotFound"


def test_a_watch_is_recorded_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        made = {"metadata": {"name": "s"}}
        await requests.ok("POST", _SECRETS, made)
        await requests.events(f"{_SECRETS}?timeoutSeconds=1", 1)

    events = _recorded(tmp_path, test, {"level": "RequestResponse", "verbs": ["watch"]})
    stages = [event["stage"] for event in events]
    assert stages == ["RequestReceived", "ResponseStarted", "ResponseComplete"]


def test_violations_of_pod_security_are_noted(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        labels = {"pod-security.kubernetes.io/audit": "baseline"}
        made = {"metadata": {"name": "n", "labels": labels}}
        await requests.ok("POST", "/api/v1/namespaces", made)
        spec = {"hostPID": True, "containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": {"name": "p"}, "spec": spec}
        await requests.ok("POST", "/api/v1/namespaces/n/pods", pod)

    rule = {"level": "Metadata", "resources": [{"resources": ["pods"]}]}
    (event,) = _recorded(tmp_path, test, rule, omitStages=["RequestReceived"])
    assert event["annotations"]["pod-security.kubernetes.io/audit-violations"] == (
        'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    )


def test_a_request_keeps_the_name_that_its_client_gave_it(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        for given in ("mine-1", "y" * 100):
            await requests("GET", "/api/v1/nodes", headers={"Audit-Id": given})

    mine, other = _recorded(tmp_path, test, {"level": "Metadata"}, omitStages=["RequestReceived"])
    assert mine["auditID"] == "mine-1"
    assert len(other["auditID"]) == 36


def test_without_a_policy_nothing_is_recorded_and_no_header_is_added(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        await requests.get("/api/v1/nodes")
        assert "audit-id" not in requests.headers

    with_requests(tmp_path, test)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--audit-log-path", "x"], "--audit-policy-file is missing"),
        (["--audit-policy-file", "x"], "--audit-log-path is missing"),
        (
            ["--audit-policy-file", "/nowhere/p", "--audit-log-path", "x"],
            "cannot read the audit policy /nowhere/p: No such file or directory",
        ),
    ],
)
def test_bad_options_are_one_clear_line(tmp_path: Path, options: list[str], said: str) -> None:
    place = ["--data-dir", str(tmp_path / "d"), "--runtime", "simulated", "--listen", "127.0.0.1:0"]
    result = CliRunner().invoke(cli, ["serve", *place, *options])
    assert isinstance(result.exception, CommandError)
    assert str(result.exception) == said


# --- the file -----------------------------------------------------------------------------


class _Time:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def _drain(log: AuditLog) -> None:
    log.stop()
    assert not log._thread.is_alive()


def test_a_file_that_is_full_makes_room_for_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"x" * (1024 * 1024))
    (tmp_path / "audit-2025-01-01T00-00-00.000.log").write_text("old")
    (tmp_path / "audit-notes.log").write_text("not ours")
    log = AuditLog(str(path), Rotation(max_mib=1, max_backups=1), _Time())
    log.write(b"{}\n")
    _drain(log)
    assert path.read_bytes() == b"{}\n"
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == ["audit-2026-01-01T00-00-01.000.log", "audit-notes.log", "audit.log"]


def test_files_that_are_too_old_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"x" * (1024 * 1024))
    old, young = "audit-2025-12-01T00-00-00.000.log", "audit-2025-12-31T00-00-00.000.log"
    for name in (old, young):
        (tmp_path / name).write_text("")
    log = AuditLog(str(path), Rotation(max_mib=1, max_age_days=7), _Time())
    log.write(b"{}\n")
    _drain(log)
    assert not (tmp_path / old).exists()
    assert (tmp_path / young).exists()


def test_a_full_disk_costs_events_and_not_requests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(str(path), Rotation(), _Time())
    log.write(b"first\n")
    while log.written < 1:
        log._thread.join(0.01)
    real = log._file

    class Full:
        def write(self, data: bytes) -> int:
            real.write(data[:3])
            raise OSError(errno.ENOSPC, "No space left on device")

        def __getattr__(self, name: str) -> Any:
            return getattr(real, name)

    log._file = Full()  # type: ignore[assignment]
    log.write(b"lost\n")
    log.write(b"lost\n")
    while log.dropped < 2:
        log._thread.join(0.01)
    log._file = real
    log.write(b"last\n")
    _drain(log)
    assert path.read_bytes() == b"first\nlast\n"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "requests go on, and are not recorded" in said[0]
    assert "2 events were lost" in said[1]


def test_a_queue_that_is_full_drops_instead_of_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onejob.api.audit.log_file._MOST_BYTES", 10)
    log = AuditLog(str(tmp_path / "audit.log"), Rotation(), _Time())
    log.write(b"x" * 11)
    assert log.dropped == 1
    _drain(log)


@pytest.mark.parametrize("kind", ["folder", "link", "missing"])
def test_a_path_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "log"
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(tmp_path / "elsewhere")
        case _:
            path = tmp_path / "no" / "log"
    with pytest.raises(CannotAudit, match="cannot write the audit log"):
        AuditLog(str(path), Rotation(), _Time())
