"""Pages of the dashboard over HTTPS: signing in, permissions, summaries, logs."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from onejob.testing import OnejobNamespace, OnejobServer
from tests.dashboard.support import Browser
from tests.ui.demo import a_cronjob, a_job, a_task, a_workflow, sweep


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnejobServer]:
    running = OnejobServer(tmp_path_factory.mktemp("server"))
    yield running
    running.stop()


@pytest.fixture(scope="module")
def namespace(server: OnejobServer) -> Iterator[OnejobNamespace]:
    made = server.new_namespace()
    yield made
    made.remove()


@pytest.fixture
def token(server: OnejobServer) -> str:
    config = msgspec.json.decode(server.kubeconfig.read_bytes())
    return str(config["users"][0]["user"]["token"])


@pytest.fixture
def browser(server: OnejobServer) -> Iterator[Browser]:
    made = Browser(server.url)
    yield made
    made.close()


@pytest.fixture
def signed_in(browser: Browser, token: str) -> Browser:
    assert browser.sign_in(_code(browser, token)) == 201
    return browser


def _code(browser: Browser, token: str) -> str:
    status, answer = browser.ask(
        "POST", "/ui/api/codes", headers={"Authorization": f"Bearer {token}"}
    )
    assert status == 201
    return str(answer["code"])


def test_the_page_itself_is_for_everybody(browser: Browser) -> None:
    status, _ = browser.ask("GET", "/ui/")
    assert status == 200
    assert "frame-ancestors 'none'" in browser.last_headers["content-security-policy"]


def test_session_has_permissions_of_its_user(signed_in: Browser) -> None:
    status, who = signed_in.ask("GET", "/ui/api/session")
    assert (status, who["user"]) == (200, "onejob-admin")
    assert signed_in.ask("GET", "/apis/batch/v1/jobs")[0] == 200


def test_a_cookie_without_the_header_is_worth_nothing(signed_in: Browser) -> None:
    """Another site, or another server on this host, could send it."""
    signed_in.key = ""
    assert signed_in.ask("GET", "/apis/batch/v1/jobs")[0] == 401
    path = "/apis/batch/v1/namespaces/default/jobs"
    assert signed_in.ask("POST", path, a_job("forged", "true"))[0] == 401


def test_the_header_without_the_cookie_is_worth_nothing(signed_in: Browser) -> None:
    signed_in.cookie = ""
    status, answer = signed_in.ask("GET", "/apis/batch/v1/jobs")
    assert status == 401
    assert "onejob ui" in answer["message"]


def test_a_code_works_once(browser: Browser, token: str) -> None:
    code = _code(browser, token)
    assert browser.sign_in(code) == 201
    browser.cookie = browser.key = ""
    assert browser.sign_in(code) == 401


def test_sign_in_link_requires_confirmation(browser: Browser, token: str) -> None:
    """The page sends the user who was signed in last.

    The code is kept until its user is confirmed.
    """
    code = _code(browser, token)
    header = {"X-Onejob-Session": "sign-in"}
    sent = {"code": code, "expected": "bob"}
    status, answer = browser.ask("POST", "/ui/api/session", sent, header)
    assert (status, answer["reason"]) == (409, "Conflict")
    assert answer["message"] == "this link is for onejob-admin, not for bob"
    assert "set-cookie" not in browser.last_headers
    sent = {"code": code, "expected": "onejob-admin"}
    assert browser.ask("POST", "/ui/api/session", sent, header)[0] == 201


def test_sign_in_codes_require_authentication(browser: Browser) -> None:
    assert browser.ask("POST", "/ui/api/codes")[0] == 401


def test_a_form_of_another_site_cannot_sign_in(browser: Browser, token: str) -> None:
    code = _code(browser, token)
    assert browser.ask("POST", "/ui/api/session", {"code": code})[0] == 400


@pytest.mark.parametrize("body", [None, "text", {"code": 3}, {}])
def test_a_sign_in_that_is_none_is_refused(browser: Browser, body: Any) -> None:
    status, _ = browser.ask("POST", "/ui/api/session", body, {"X-Onejob-Session": "sign-in"})
    assert status == 400


def test_sign_in_request_body_is_limited(browser: Browser) -> None:
    body = {"code": "x" * 5000}
    status, _ = browser.ask("POST", "/ui/api/session", body, {"X-Onejob-Session": "sign-in"})
    assert status == 413


def test_a_session_opens_no_further_ones(signed_in: Browser) -> None:
    assert signed_in.ask("POST", "/ui/api/codes")[0] == 400


def test_sign_in_cannot_select_another_user(browser: Browser, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}", "Impersonate-User": "alice"}
    assert browser.ask("POST", "/ui/api/codes", headers=headers)[0] == 400


def test_signing_out_ends_the_session(signed_in: Browser) -> None:
    assert signed_in.ask("DELETE", "/ui/api/session")[0] == 200
    assert "Max-Age=0" in signed_in.last_headers["set-cookie"]
    assert signed_in.ask("GET", "/ui/api/session")[0] == 401


def test_a_user_without_permission_gets_no_summary(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("hidden", "true"))
    path = f"/ui/api/jobs/{namespace.name}/hidden"
    assert signed_in.ask("GET", path)[0] == 200
    for query in ("", "/rerun"):
        status, answer = signed_in.ask("GET", path + query, headers={"Impersonate-User": "bob"})
        assert (status, answer["reason"]) == (403, "Forbidden")
    for page in ("queue", "mirrors"):
        assert signed_in.ask("GET", f"/ui/api/{page}?namespace={namespace.name}")[0] == 200
        assert (
            signed_in.ask("GET", f"/ui/api/{page}", headers={"Impersonate-User": "bob"})[0] == 403
        )
    logs = f"/ui/api/logs/{namespace.name}?log=p/main"
    assert signed_in.ask("GET", logs, headers={"Impersonate-User": "bob"})[0] == 403


def test_a_job_is_explained_as_why_has_it(signed_in: Browser, namespace: OnejobNamespace) -> None:
    namespace.create(a_job("fails", "echo bad news; exit 4", backoffLimit=0))
    namespace.wait_for_job("fails")
    status, summary = signed_in.ask("GET", f"/ui/api/jobs/{namespace.name}/fails")
    assert status == 200
    assert summary["state"].startswith("job/fails is Failed")
    assert "BackoffLimitExceeded" in summary["cause"][0]
    (failure,) = summary["failures"]
    assert (failure["exitCode"], failure["count"]) == (4, 1)
    (pod,) = summary["pods"]
    assert (pod["phase"], pod["exitCode"]) == ("Failed", 4)


def test_cause_of_a_failed_job_is_its_exit_code_and_last_line(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("told", "echo start; echo no space left >&2; exit 5", backoffLimit=0))
    namespace.create(a_job("good", "true"))
    for name in ("told", "good"):
        namespace.wait_for_job(name)
    told, good = f"{namespace.name}/told", f"{namespace.name}/good"
    path = f"/ui/api/causes?job={told}&job={good}&job={namespace.name}/absent"
    assert signed_in.ask("GET", path)[1]["causes"] == {
        told: {"text": "exit code 5: no space left", "blocked": False},
        good: {"text": "", "blocked": False},
    }
    assert signed_in.ask("GET", path, headers={"Impersonate-User": "bob"})[0] == 403
    for verb, resource in (("get", "jobs"), ("list", "pods")):
        rule = {"apiGroups": ["", "batch"], "resources": [resource], "verbs": [verb]}
        _allow(namespace, "erin", rule)
    # Without permission to read logs.
    _, answer = signed_in.ask("GET", path, headers={"Impersonate-User": "erin"})
    assert answer["causes"][told]["text"] == "exit code 5"


@pytest.mark.parametrize("query", ["", "job=x", "job=/x", "&".join(["job=a/b"] * 101)])
def test_wrong_question_for_causes_is_refused(signed_in: Browser, query: str) -> None:
    assert signed_in.ask("GET", f"/ui/api/causes?{query}")[0] == 400


def test_a_back_off_has_a_time_to_count_down_to(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    namespace.create(a_job("backs-off", "exit 1", backoffSeconds=600))
    path = f"/ui/api/jobs/{namespace.name}/backs-off"
    for _ in range(100):
        _, summary = signed_in.ask("GET", path)
        notes = {note["kind"]: note for note in summary["notes"]}
        if "backoff" in notes:
            break
        time.sleep(0.1)
    assert notes["backoff"]["until"] > summary["now"]


def test_a_pod_is_explained(signed_in: Browser, namespace: OnejobNamespace) -> None:
    namespace.create(a_job("one", "true"))
    namespace.wait_for_job("one")
    (pod,) = namespace.list("pods", "batch.kubernetes.io/job-name=one")
    name = pod["metadata"]["name"]
    status, words = signed_in.ask("GET", f"/ui/api/pods/{namespace.name}/{name}")
    assert status == 200
    assert words["state"].startswith(f"pod/{name}")


def test_a_cronjob_has_its_next_times(signed_in: Browser, namespace: OnejobNamespace) -> None:
    namespace.create(a_cronjob("daily", "0 3 * * *", "true", timeZone="Asia/Tokyo"))
    path = f"/ui/api/cronjobs/{namespace.name}/daily"
    status, summary = signed_in.ask("GET", path)
    assert (status, summary["zone"], len(summary["coming"])) == (200, "Asia/Tokyo", 30)
    _, answer = signed_in.ask("GET", f"{path}/manual-job")
    assert answer["document"]["metadata"]["generateName"] == "daily-manual-"


def test_rerun_creates_job_of_failed_indexes(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    script = '[ "$JOB_COMPLETION_INDEX" != 1 ]'
    job = a_job(
        "some", script, completions=3, parallelism=3, completionMode="Indexed",
        backoffLimitPerIndex=0,
    )  # fmt: skip
    namespace.create(job)
    namespace.wait_for_job("some")
    path = f"/ui/api/jobs/{namespace.name}/some/rerun"
    _, whole = signed_in.ask("GET", path)
    (document,) = whole["documents"]
    assert (document["metadata"]["name"], document["spec"]["completions"]) == ("some-rerun-1", 3)
    _, rest = signed_in.ask("GET", f"{path}?failedOnly=true")
    assert rest["documents"][0]["spec"]["completions"] == 1
    _, last = signed_in.ask("GET", f"{path}?fromIndex=2")
    assert last["documents"][0]["metadata"]["annotations"]["onejob.dev/rerun-indexes"] == "2"
    for wrong in ("3", "-1", "x"):
        assert signed_in.ask("GET", f"{path}?fromIndex={wrong}")[0] == 400


def test_results_continue_those_of_the_job_that_was_rerun(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    sweep(namespace)
    path = f"/ui/api/jobs/{namespace.name}"
    _, found = signed_in.ask("GET", f"{path}/sweep/results")
    assert (found["parameters"], found["columns"]) == (["seed", "lr"], ["loss"])
    assert [row["state"] for row in found["rows"]] == [*["Succeeded"] * 3, "Failed"]
    assert [row["values"] for row in found["rows"]] == [["9"], ["5"], ["1"], [""]]
    _, rest = signed_in.ask("GET", f"{path}/sweep/rerun?failedOnly=true")
    for document in rest["documents"]:
        namespace.create(document)
    namespace.wait_for_job("sweep-rerun-1")
    _, again = signed_in.ask("GET", f"{path}/sweep-rerun-1/results")
    assert [row["params"] for row in again["rows"]] == [row["params"] for row in found["rows"]]
    assert [row["attempts"] for row in again["rows"]] == [1, 1, 1, 2]
    assert again["complete"]
    # Kept results are not for users who may not read the parameters.
    for verb, resource in (("get", "jobs"), ("list", "pods")):
        rule = {"apiGroups": ["", "batch"], "resources": [resource], "verbs": [verb]}
        _allow(namespace, "frank", rule)
    frank = {"Impersonate-User": "frank"}
    status, answer = signed_in.ask("GET", f"{path}/sweep-rerun-1/results", headers=frank)
    assert (status, "configmaps" in answer["message"]) == (403, True)
    status, text = signed_in.ask("GET", f"{path}/sweep/results?format=csv")
    assert (status, text.split(b"\n")[4].startswith(b"3,3,2,Failed,3,")) == (200, True)


def test_a_rerun_shows_no_config_map_that_one_may_not_read(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    """A Job names the ConfigMap of its parameters; the server could read any."""
    rows = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "rows"}}
    namespace.create({**rows, "data": {"rows-0": "export password=1234"}})
    job = a_job("with-rows", "true", suspend=True)
    job["metadata"]["annotations"] = {"onejob.dev/params": "rows"}
    namespace.create(job)
    _allow(namespace, "carol", {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["*"]})
    path = f"/ui/api/jobs/{namespace.name}/with-rows/rerun"
    carol = {"Impersonate-User": "carol"}
    status, answer = signed_in.ask("GET", path, headers=carol)
    assert (status, "configmaps" in answer["message"]) == (403, True)
    _allow(namespace, "carol", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})
    status, answer = signed_in.ask("GET", path, headers=carol)
    # This Job was not made for rows.
    assert (status, "without its parameter rows" in answer["message"]) == (400, True)


def test_the_queue_quotes_no_config_map_that_one_may_not_read(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    config_maps = "/api/v1/namespaces/kube-system/configmaps"
    limits = {"metadata": {"name": "onejob-queues"}, "data": {"limits": "password 1234"}}
    json_body = {"Content-Type": "application/json"}
    assert signed_in.ask("POST", config_maps, limits, json_body)[0] == 201
    _allow(namespace, "dave", {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["list"]})
    path = f"/ui/api/queue?namespace={namespace.name}"
    dave = {"Impersonate-User": "dave"}
    try:
        # The result is cached for a moment.
        for _ in range(600):
            if problem := signed_in.ask("GET", path)[1]["problem"]:
                break
            time.sleep(0.1)
        assert problem.startswith("configmap kube-system/onejob-queues: ")
        assert "password" in problem
        status, answer = signed_in.ask("GET", path, headers=dave)
        text = "configmap kube-system/onejob-queues (no permission to read it)"
        assert (status, answer["problem"]) == (200, text)
    finally:
        signed_in.ask("DELETE", f"{config_maps}/onejob-queues")


def _allow(namespace: OnejobNamespace, user: str, rule: dict[str, Any]) -> None:
    name = f"{user}-{rule['resources'][0]}"
    group = "rbac.authorization.k8s.io"
    made = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    namespace.create({**made, "kind": "Role", "rules": [rule]})
    role = {"apiGroup": group, "kind": "Role", "name": name}
    subject = {"apiGroup": group, "kind": "User", "name": user}
    namespace.create({**made, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]})


def test_logs_of_several_pods_come_in_one_answer(
    signed_in: Browser, namespace: OnejobNamespace
) -> None:
    job = a_job("talks", "echo from $JOB_COMPLETION_INDEX", completions=2, completionMode="Indexed")
    namespace.create(job)
    namespace.wait_for_job("talks")
    pods = namespace.list("pods", "batch.kubernetes.io/job-name=talks")
    names = sorted(pod["metadata"]["name"] for pod in pods)
    query = "&".join(f"log={name}/main" for name in [*names, "gone-x"])
    status, body = signed_in.ask("GET", f"/ui/api/logs/{namespace.name}?{query}&follow=true")
    assert status == 200
    found = _frames(body)
    assert sorted(found) == [0, 1]
    for number in (0, 1):
        assert found[number].endswith(b" from %d\n" % number)
        assert found[number].startswith(b"20")


def _frames(body: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    while body:
        header, _, body = body.partition(b"\n")
        number, size = map(int, header.split())
        found[number] = found.get(number, b"") + body[:size]
        body = body[size:]
    return found


@pytest.mark.parametrize("query", ["", "log=pod", "log=/main", "log=p/main&tailLines=x"])
def test_a_wrong_question_for_logs_is_refused(
    signed_in: Browser, namespace: OnejobNamespace, query: str
) -> None:
    assert signed_in.ask("GET", f"/ui/api/logs/{namespace.name}?{query}")[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/ui/api/nothing", 404),
        ("GET", "/ui/api/jobs/default/nothing", 404),
        ("POST", "/ui/api/jobs/default/x", 405),
        ("GET", "/ui/api/jobs/default/x/indexes/0", 404),
        ("GET", "/ui/api/jobs/default/x/indexes/-1", 400),
        ("POST", "/ui/", 405),
        ("GET", "/ui/../users.json", 404),
    ],
)
def test_wrong_requests(signed_in: Browser, method: str, path: str, status: int) -> None:
    """Error responses have the same security headers as others."""
    assert signed_in.ask(method, path)[0] == status
    headers = signed_in.last_headers
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_the_command_prints_an_address_that_signs_in(
    server: OnejobServer, browser: Browser, capsys: pytest.CaptureFixture[str]
) -> None:
    from onejob.cli.main import run_command

    code = run_command(["ui", "--no-browser", "--kubeconfig", str(server.kubeconfig)])
    assert code == 0, sys.stderr
    shown = capsys.readouterr()
    address = shown.out.strip()
    assert address.startswith(f"{server.url}/ui/#/sign-in/")
    assert shown.err == "note: open this URL within a minute; it is valid once\n"
    assert browser.sign_in(address.rpartition("/")[2].partition("?")[0]) == 201


def test_where_there_is_no_browser_the_address_is_printed(
    server: OnejobServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from onejob.cli.main import run_command

    monkeypatch.setattr("onejob.cli.display.browsers.open_browser", lambda _: False)
    assert run_command(["ui", "--kubeconfig", str(server.kubeconfig)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith(f"{server.url}/ui/#/sign-in/")
    assert shown.err == (
        "note: cannot open a browser: open this URL within a minute; it is valid once\n"
    )


def test_a_revoked_user_is_out_at_once(
    server: OnejobServer, browser: Browser, tmp_path: Path
) -> None:
    """A session is valid only as long as the token behind it."""
    from datetime import UTC, datetime

    from onejob.api.access.users import USERS_FILE, add_user, revoke_user

    users = server.kubeconfig.parent / "server" / USERS_FILE
    token = add_user(users, "alice", ("system:masters",), datetime(2030, 1, 1, tzinfo=UTC), None)
    assert browser.sign_in(_code(browser, token)) == 201
    assert browser.ask("GET", "/ui/api/session")[0] == 200
    revoke_user(users, "alice")
    assert browser.ask("GET", "/ui/api/session")[0] == 401


def test_next_runs_of_cronjobs_leave_out_suspended_ones(
    signed_in: Browser, server: OnejobServer
) -> None:
    namespace = server.new_namespace()
    namespace.create(a_cronjob("yearly", "0 0 1 1 *", "true", timeZone="Etc/UTC"))
    namespace.create(a_cronjob("held", "0 0 1 1 *", "true", suspend=True))
    status, answer = signed_in.ask("GET", f"/ui/api/cronjobs?namespace={namespace.name}")
    assert status == 200
    assert list(answer["next"]) == [f"{namespace.name}/yearly"]
    assert answer["next"][f"{namespace.name}/yearly"].endswith("-01-01T00:00:00Z")
    namespace.remove()


def test_rerun_of_workflow_is_refused_with_reason(signed_in: Browser, server: OnejobServer) -> None:
    namespace = server.new_namespace()
    namespace.create(a_workflow("held", a_task("one", "true"), suspend=True))
    path = f"/ui/api/workflows/{namespace.name}"
    status, answer = signed_in.ask("GET", f"{path}/held/rerun?from=one")
    assert (status, "has not finished" in answer["message"]) == (400, True)
    assert signed_in.ask("GET", f"{path}/nothing/rerun")[0] == 404
    namespace.remove()
