"""Audit log: events of a whole server's requests, and robustness of the log file."""

import asyncio
import errno
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from onejob.api.access.authorization import Attributes
from onejob.api.audit import recorder
from onejob.api.audit.configuration import AuditSettings
from onejob.api.audit.log_file import AuditLog, CannotAudit, Rotation
from onejob.api.decoding.bodies import decode_body
from onejob.cli.errors import CommandError
from onejob.cli.main import cli
from onejob.planning.audit import read_policy
from onejob.planning.names import PENDING_DEADLINE_ANNOTATION as _DEADLINE
from onejob.planning.queue.limits import LIMITS_KEY, LIMITS_NAME, LIMITS_NAMESPACE
from onejob.planning.rbac.component_roles import (
    CONTROLLERS,
    controller_user,
    manager_user,
    node_user,
    server_user,
)
from onejob.wire.requests import User
from tests import build
from tests.api.http.raw_requests import Requests, a_server, with_requests
from tests.ui.demo import a_job

_SECRET = "c2VjcmV0LXRleHQ="


async def _recorded(
    folder: Path, test: Callable[[Requests], Any], *rules: dict[str, Any], **policy: Any
) -> list[dict[str, Any]]:
    """Return the events of the requests of `test`, without the server's own."""
    own = {"level": "None", "users": sorted(_OWN_USERS)}
    return await _all_recorded(folder, test, own, *rules, **policy)


async def _all_recorded(
    folder: Path, test: Callable[[Requests], Any], *rules: dict[str, Any], **policy: Any
) -> list[dict[str, Any]]:
    document = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules), **policy}
    (folder / "policy.yaml").write_text(json.dumps(document))
    log = folder / "audit.log"
    audit = AuditSettings(str(folder / "policy.yaml"), str(log))
    async with a_server(folder, audit=audit) as requests, asyncio.timeout(60):
        await test(requests)
    assert log.stat().st_mode & 0o777 == 0o600
    return [json.loads(line) for line in log.read_text().splitlines()]


_OWN_USERS = {
    server_user().name,
    manager_user().name,
    node_user("node").name,
    *(controller_user(account).name for account in CONTROLLERS),
}
_SECRETS = "/api/v1/namespaces/default/secrets"


async def _make_secret(requests: Requests) -> None:
    await requests.ok("POST", _SECRETS, {"metadata": {"name": "s"}, "data": {"k": _SECRET}})
    await requests.get(f"{_SECRETS}/s")


async def test_audit_event_contains_user_verb_and_response_code(tmp_path: Path) -> None:
    received, complete, *_ = await _recorded(tmp_path, _make_secret, {"level": "Metadata"})
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
async def test_audit_level_selects_recorded_content(
    tmp_path: Path, level: str, request_object: bool, response_object: bool
) -> None:
    stages = ["RequestReceived"]
    made, read = await _recorded(tmp_path, _make_secret, {"level": level}, omitStages=stages)
    assert ("requestObject" in made, "responseObject" in made) == (request_object, response_object)
    assert ("requestObject" in read, "responseObject" in read) == (False, response_object)
    text = (tmp_path / "audit.log").read_text()
    assert (_SECRET in text) is request_object


@pytest.mark.parametrize("path", ["/ui/api/codes", "/version"])
async def test_bodies_are_recorded_of_resources_only(tmp_path: Path, path: str) -> None:
    """As Kubernetes does. Moreover a login code is as good as a token until it is used."""
    sent = {"word": _SECRET}

    async def test(requests: Requests) -> None:
        _, answer = await requests("POST", path, sent)
        if path.startswith("/ui"):
            codes.append(answer["code"])

    codes: list[str] = []
    stages = ["RequestReceived"]
    (event,) = await _recorded(tmp_path, test, {"level": "RequestResponse"}, omitStages=stages)
    assert (event["level"], event["stage"]) == ("RequestResponse", "ResponseComplete")
    assert not {"requestObject", "responseObject"} & event.keys()
    text = (tmp_path / "audit.log").read_text()
    assert not [secret for secret in (_SECRET, *codes) if secret in text]


def _reference(event: dict[str, Any]) -> tuple[str, ...]:
    fields = ("resource", "subresource", "namespace", "name")
    return (event["verb"], *(event.get("objectRef", {}).get(field, "") for field in fields))


@pytest.mark.parametrize(
    ("path", "reads"),
    [
        (
            "logs/default?log=p/main&log=p/side&log=q/main&follow=true",
            [("get", "pods", "log", "default", "p"), ("get", "pods", "log", "default", "q")],
        ),
        (
            "jobs/default/j",
            [("get", "jobs", "", "default", "j"), ("list", "pods", "", "default", "")],
        ),
        (
            "jobs/default/j/indexes/0",
            [("get", "jobs", "", "default", "j"), ("list", "pods", "", "default", "")],
        ),
        ("pods/default/p", [("get", "pods", "", "default", "p")]),
        (
            "jobs/default/j/rerun",
            [("get", "jobs", "", "default", "j"), ("get", "configmaps", "", "default", "rows")],
        ),
        ("cronjobs/default/c/manual-job", [("get", "cronjobs", "", "default", "c")]),
        ("queue", [("list", "jobs", "", "", "")]),
        ("mirrors", [("list", "jobs", "", "", ""), ("list", "secrets", "", "", "")]),
    ],
)
async def test_dashboard_reads_are_audited_as_api_reads_of_the_user(
    tmp_path: Path, path: str, reads: list[tuple[str, ...]]
) -> None:
    """A policy about logs or Secrets also holds for reads by the dashboard on a user's behalf."""
    stages = ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    job = a_job("j", "true", suspend=True)
    job["metadata"]["annotations"] = {"onejob.dev/params": "rows"}

    async def test(requests: Requests) -> None:
        await requests.ok("POST", "/apis/batch/v1/namespaces/default/jobs", job)
        async with requests.session.get(f"/ui/api/{path}") as answer:
            await answer.read()

    wanted = {"level": "RequestResponse", "verbs": ["get", "list"]}
    events = await _recorded(tmp_path, test, wanted, {"level": "None"})
    for stage in stages if "follow" in path else ("RequestReceived", "ResponseComplete"):
        found = [event for event in events if event["stage"] == stage]
        assert [_reference(event) for event in found] == reads
    assert {event["requestURI"] for event in events} == {f"/ui/api/{path}"}
    assert len({event["auditID"] for event in events}) == 1
    # The response combines several objects, and is none of them.
    assert not any("responseObject" in event for event in events)


async def test_denied_dashboard_log_request_is_audited_with_its_user(
    tmp_path: Path,
) -> None:
    async def test(requests: Requests) -> None:
        bob = {"Impersonate-User": "bob"}
        code, _ = await requests("GET", "/ui/api/logs/default?log=p/main", headers=bob)
        assert code == 403

    stages = ["RequestReceived"]
    (event,) = await _recorded(tmp_path, test, {"level": "Metadata"}, omitStages=stages)
    assert _reference(event) == ("get", "pods", "log", "default", "p")
    assert event["impersonatedUser"]["username"] == "bob"
    assert event["responseStatus"]["code"] == 403
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"


@pytest.mark.parametrize("path", ["/version", "/metrics", "/api", f"{_SECRETS}/absent"])
async def test_a_session_that_is_refused_is_recorded_like_any_request(
    tmp_path: Path, path: str
) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}

    async def test(requests: Requests) -> None:
        assert (await requests("POST", path, headers=upgrade))[0] == 400

    stages = ["RequestReceived"]
    (event,) = await _recorded(tmp_path, test, {"level": "Metadata"}, omitStages=stages)
    assert (event["requestURI"], event["responseStatus"]["code"]) == (path, 400)
    assert event["sourceIPs"] == ["127.0.0.1"]


async def test_large_bodies_are_read_by_the_thread_that_writes_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the loop, a megabyte of YAML would block all other requests."""
    threads: list[tuple[int, str]] = []

    def spied(body: bytes, content_type: str) -> Any:
        threads.append((len(body), threading.current_thread().name))
        return decode_body(body, content_type)

    monkeypatch.setattr(recorder, "decode_body", spied)
    small, large = {"k": "a"}, {"k": "a" * 100_000}

    async def test(requests: Requests) -> None:
        for name, data in (("small", small), ("large", large)):
            made = {"metadata": {"name": name}, "data": data}
            path = "/api/v1/namespaces/default/configmaps"
            await requests.ok("POST", path, made)

    stages = ["RequestReceived"]
    made = await _recorded(tmp_path, test, {"level": "RequestResponse"}, omitStages=stages)
    assert [event["requestObject"]["data"] for event in made] == [small, large]
    assert [event["responseObject"]["data"] for event in made] == [small, large]
    assert [name for size, name in threads if size > 100_000] == ["audit-log"]


def test_of_a_body_that_is_too_large_nothing_is_kept(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "audit.log"), Rotation(), _Time())
    rules = [{"level": "Request", "omitStages": ["RequestReceived"]}]
    policy = read_policy({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules})
    auditor = recorder.Auditor(policy, log, _Time(), Random(1))
    headers = {b"content-type": b"application/json"}
    audited = auditor.begin("/x", headers)
    audited.identified(User("bob"), None, Attributes("create", "", "v1", "configmaps"))
    for piece in (b'{"a":"', *(b"x" * 1_000_000 for _ in range(4)), b'"}'):
        audited.body(piece)
    assert audited._body == []
    audited.complete(413, None, b"")
    _drain(log)
    event = json.loads((tmp_path / "audit.log").read_bytes())
    assert event["responseStatus"]["code"] == 413
    assert "requestObject" not in event


async def test_audit_rules_exclude_requests(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        await requests.get("/healthz")
        await _make_secret(requests)
        await requests.get("/api/v1/namespaces/default/pods")

    events = await _recorded(
        tmp_path,
        test,
        {"level": "None", "nonResourceURLs": ["/healthz*"]},
        {"level": "None", "resources": [{"group": "", "resources": ["secrets"]}]},
        {"level": "Metadata", "omitStages": ["RequestReceived"]},
    )
    assert [(event["verb"], event["objectRef"]["resource"]) for event in events] == [
        ("list", "pods")
    ]


async def test_refusals_are_recorded_with_their_reason(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        wrong = {"Authorization": "Bearer nonsense"}
        assert (await requests("GET", "/api/v1/pods", headers=wrong))[0] == 401
        other = {"Impersonate-User": "bob"}
        assert (await requests("GET", "/api/v1/nodes", headers=other))[0] == 403
        assert (await requests("GET", f"{_SECRETS}/absent"))[0] == 404

    unknown, forbidden, missing = await _recorded(
        tmp_path, test, {"level": "Metadata"}, omitStages=["RequestReceived"]
    )
    assert unknown["responseStatus"]["code"] == 401
    assert unknown["user"] == {}
    assert forbidden["impersonatedUser"]["username"] == "bob"
    assert forbidden["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert forbidden["responseStatus"]["reason"] == "Forbidden"
    assert missing["responseStatus"]["reason"] == "NotFound"


async def test_a_watch_is_recorded_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        made = {"metadata": {"name": "s"}}
        await requests.ok("POST", _SECRETS, made)
        await requests.events(f"{_SECRETS}?timeoutSeconds=1", 1)

    events = await _recorded(tmp_path, test, {"level": "RequestResponse", "verbs": ["watch"]})
    stages = [event["stage"] for event in events]
    assert stages == ["RequestReceived", "ResponseStarted", "ResponseComplete"]


async def test_violations_of_pod_security_are_noted(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        labels = {"pod-security.kubernetes.io/audit": "baseline"}
        made = {"metadata": {"name": "n", "labels": labels}}
        await requests.ok("POST", "/api/v1/namespaces", made)
        spec = {"hostPID": True, "containers": [{"name": "c", "image": "i"}]}
        pod = {"metadata": {"name": "p"}, "spec": spec}
        await requests.ok("POST", "/api/v1/namespaces/n/pods", pod)

    rule = {"level": "Metadata", "resources": [{"resources": ["pods"]}]}
    (event,) = await _recorded(tmp_path, test, rule, omitStages=["RequestReceived"])
    assert event["annotations"]["pod-security.kubernetes.io/audit-violations"] == (
        'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    )


async def test_a_request_keeps_the_name_that_its_client_gave_it(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        for given in ("mine-1", "y" * 100):
            await requests("GET", "/api/v1/nodes", headers={"Audit-Id": given})

    mine, other = await _recorded(
        tmp_path, test, {"level": "Metadata"}, omitStages=["RequestReceived"]
    )
    assert mine["auditID"] == "mine-1"
    assert len(other["auditID"]) == 36


_JOBS = "/apis/batch/v1/namespaces/default/jobs"


def _job(name: str, **pod: Any) -> dict[str, Any]:
    return build.a_job(name, backoffLimit=0, template=build.template(metadata=pod))


async def _use_all_controllers(requests: Requests) -> None:
    """Create a Job that waits in the queue, a budget for its Pod, and a Pod with a deadline."""
    limits = {"metadata": {"name": LIMITS_NAME}, "data": {LIMITS_KEY: "*=0"}}
    config_maps = f"/api/v1/namespaces/{LIMITS_NAMESPACE}/configmaps"
    await requests.ok("POST", config_maps, limits)
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    await requests.ok("POST", budgets, {"metadata": {"name": "b"}, "spec": budget})
    await requests.ok("POST", _JOBS, _job("one", labels={"a": "b"}))
    await requests.until(f"{_JOBS}/one", lambda job: job["spec"]["suspend"])
    limits["data"][LIMITS_KEY] = "*=1"
    await requests.ok("PUT", f"{config_maps}/{LIMITS_NAME}", limits)
    await requests.until(f"{_JOBS}/one", lambda job: "completionTime" in job["status"])
    await requests.until(f"{budgets}/b", lambda found: "conditions" in found.get("status", {}))
    pod = _job("late")["spec"]["template"]
    pod["metadata"] = {"name": "late", "annotations": {_DEADLINE: "0"}}
    pod["spec"]["nodeSelector"] = {"no": "such"}
    pods = "/api/v1/namespaces/default/pods"
    await requests.ok("POST", pods, pod)
    await requests.until(f"{pods}/late", lambda late: late["status"]["phase"] == "Failed")


async def test_the_servers_own_parts_are_recorded_under_their_names(tmp_path: Path) -> None:
    """All their requests are within their roles."""
    events = await _all_recorded(
        tmp_path, _use_all_controllers, {"level": "RequestResponse"}, omitStages=["RequestReceived"]
    )
    own = [event for event in events if event["user"]["username"] in _OWN_USERS]
    assert [event for event in own if event["responseStatus"]["code"] == 403] == []
    done = {
        (
            event["user"]["username"].rpartition(":")[2],
            event["verb"],
            "/".join(filter(None, map(event["objectRef"].get, ("resource", "subresource")))),
        )
        for event in own
        if event["stage"] == "ResponseComplete"
    }
    assert done >= {
        ("job-controller", "create", "pods"),
        ("job-controller", "patch", "jobs/status"),
        ("node", "patch", "pods/status"),
        ("queue-controller", "patch", "jobs"),
        ("disruption-controller", "update", "poddisruptionbudgets/status"),
        ("pending-deadline-controller", "patch", "pods/status"),
        ("namespace-controller", "create", "configmaps"),
        ("clusterrole-aggregation-controller", "patch", "clusterroles"),
        ("kube-controller-manager", "watch", "pods"),
        ("apiserver", "create", "namespaces"),
    }
    # No component writes under another name.
    assert {event["user"]["username"] for event in events} - _OWN_USERS == {"onejob-admin"}
    created = next(
        event
        for event in own
        if event["user"]["username"].endswith(":job-controller")
        and (event["verb"], event["objectRef"]["resource"]) == ("create", "pods")
    )
    assert created["requestURI"] == "/api/v1/namespaces/default/pods"
    assert created["requestObject"]["kind"] == "Pod"
    assert created["responseObject"]["metadata"]["uid"]
    assert created["responseStatus"]["code"] == 201


def test_every_answer_names_its_request_also_without_a_policy(tmp_path: Path) -> None:
    async def test(requests: Requests) -> None:
        seen = set()
        for path in ("/api/v1/nodes", "/api/v1/nodes/absent", "/healthz", "/no/such/page"):
            await requests("GET", path)
            seen.add(requests.headers["audit-id"])
        assert len(seen) == 4
        assert all(str(UUID(one)) == one for one in seen)
        await requests("GET", "/version", headers={"Audit-Id": "mine-1"})
        assert requests.headers["audit-id"] == "mine-1"
        await requests("GET", "/version", headers={"Audit-Id": "a b"})
        assert requests.headers["audit-id"] not in ("a b", *seen)

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


def test_an_event_that_cannot_be_made_costs_no_other(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "audit.log"), Rotation(), _Time())
    log.write(b"1\n")
    log.write_later(lambda: b"%d\n" % (1 // 0), 10)
    log.write_later(lambda: b"2\n", 10)
    _drain(log)
    assert (tmp_path / "audit.log").read_bytes() == b"1\n2\n"
    assert (log.written, log.dropped) == (2, 1)


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
    monkeypatch.setattr("onejob.api.audit.log_file._MAX_QUEUED_BYTES", 10)
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
