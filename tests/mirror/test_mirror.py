"""Mirrored Jobs between two real servers over TLS, with real processes on the remote side."""

import asyncio
import base64
import subprocess
from pathlib import Path

import msgspec
import pytest

from onejob.client.base import Create, Delete, Patch, Selection
from onejob.controllers.mirror import remote
from onejob.objects.meta import EVENTS, JOBS, PODS, Key
from onejob.planning.mirror import names
from onejob.wire.errors import NotFound
from tests.mirror.conftest import Do
from tests.mirror.pairs import (
    Document,
    Pair,
    a_job,
    add_target,
    condition,
    is_complete,
    is_failed,
    read,
    trouble,
    until,
    until_gone,
)


def kubectl(pair: Pair, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["kubectl", "--kubeconfig", str(pair.here.kubeconfig), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_job_runs_over_there_and_its_status_comes_back(pair: Pair, do: Do) -> None:
    async def run() -> None:
        uid = await pair.create("plain", completions=3, parallelism=2)
        job = await pair.until(is_complete, "plain")
        copy = await pair.copy("plain")
        assert job["status"]["succeeded"] == 3
        assert job["status"]["completionTime"] == copy["status"]["completionTime"]
        assert {one["type"] for one in job["status"]["conditions"]} == {
            "SuccessCriteriaMet", "Complete", names.READY,
        }  # fmt: skip
        assert condition(job)["status"] == "True"
        assert "managedBy" not in copy["spec"]
        assert copy["metadata"]["labels"][names.ORIGIN] == uid
        assert copy["metadata"]["uid"] in job["metadata"]["annotations"][names.RECORD]
        here = [pod for pod in await pair.pods(pair.local) if is_of(pod, uid)]
        there = [pod for pod in await pair.pods(pair.remote) if is_of(pod, uid)]
        assert {pod["metadata"]["name"] for pod in here} == {
            pod["metadata"]["name"] for pod in there
        }
        assert all(pod["status"]["phase"] == "Succeeded" for pod in here)
        assert all(pod["spec"]["nodeName"] == "there.mirror.onejob.dev" for pod in here)

    do(run())


def is_of(pod: Document, origin: str) -> bool:
    return bool(pod["metadata"]["labels"].get(names.ORIGIN) == origin)


def is_named(pod: Document, job: str) -> bool:
    return bool(pod["metadata"]["labels"].get("job-name") == job)


def test_kubectl_reaches_the_remote_pods(pair: Pair, do: Do) -> None:
    do(pair.create("talks", command="echo from afar; while [ ! -e gate ]; do sleep 0.05; done"))
    do(pair.until(lambda job: job.get("status", {}).get("ready") == 1, "talks"))
    pod = next(
        pod
        for pod in do(pair.pods(pair.local))
        if pod["metadata"]["labels"].get("job-name") == "talks"
    )
    name = pod["metadata"]["name"]
    assert kubectl(pair, "logs", "job/talks").stdout == "from afar\n"
    said = kubectl(pair, "exec", name, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (said.stdout, "err" in said.stderr, said.returncode) == ("out\n", True, 3)
    forwarded = kubectl(pair, "get", "--raw", f"/api/v1/namespaces/default/pods/{name}/attach")
    assert forwarded.returncode != 0
    assert kubectl(pair, "exec", name, "--", "touch", "gate").returncode == 0
    do(pair.until(is_complete, "talks"))
    assert kubectl(pair, "logs", "job/talks").stdout == "from afar\n", "also after its end"
    described = kubectl(pair, "describe", "pod", name).stdout
    assert "there.mirror.onejob.dev" in described
    assert "Started container" in described or "Started" in described, "events came along"


def test_a_pod_that_only_pretends_to_stand_in_shows_nothing(pair: Pair, do: Do) -> None:
    """Otherwise creators of Pods here could reach every Pod of the target's credentials.

    They could read logs and run commands there without access to these credentials.
    """

    async def run() -> None:
        uid = await pair.create("honest", command="echo from afar")
        await pair.until(is_complete, "honest")
        main = {"name": "main", "image": "busybox", "command": ["sh", "-c", "echo private"]}
        spec = {"restartPolicy": "Never", "containers": [main]}
        private = {"metadata": {"name": "private"}, "spec": spec}
        await pair.remote.write(Create(PODS, "default", msgspec.json.encode(private)))
        await until(
            pair.remote,
            Key(PODS, "default", "private"),
            lambda pod: pod.get("status", {}).get("phase") == "Succeeded",
        )
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "honest", "uid": uid}
        for owners in ([], [{**owner, "controller": True}]):
            forged = {
                "metadata": {"name": "private", "ownerReferences": owners},
                "spec": {**spec, "nodeName": names.node_name("there")},
            }
            await pair.local.write(Create(PODS, "default", msgspec.json.encode(forged)))
            with pytest.raises(NotFound, match="does not represent a Pod of a mirrored Job"):
                await pair.http.get_raw("/api/v1/namespaces/default/pods/private/log")
            said = await asyncio.to_thread(kubectl, pair, "exec", "private", "--", "id")
            assert "does not represent a Pod" in said.stderr
            await pair.local.write(Delete(Key(PODS, "default", "private"), grace_seconds=0))
        await pair.remote.write(Delete(Key(PODS, "default", "private"), grace_seconds=0))

    do(run())


def test_changes_are_passed_on(pair: Pair, do: Do) -> None:
    async def run() -> None:
        await pair.create("elastic", command="sleep 600", parallelism=1, completions=9)
        await pair.until(lambda job: job.get("status", {}).get("active") == 1, "elastic")
        await pair.patch({"spec": {"parallelism": 2}}, "elastic")
        await pair.until(lambda job: job["status"].get("active") == 2, "elastic")
        await pair.patch({"spec": {"suspend": True}}, "elastic")
        job = await pair.until(
            lambda job: (
                condition(job, "Suspended").get("status") == "True"
                and not job["status"].get("active")
            ),
            "elastic",
        )
        assert "startTime" not in job["status"]
        await pair.patch({"spec": {"suspend": False, "parallelism": 1}}, "elastic")
        job = await pair.until(lambda job: job["status"].get("active") == 1, "elastic")
        assert condition(job, "Suspended")["status"] == "False"
        await pair.delete("elastic")
        await until_gone(pair.local, Key(JOBS, "default", "elastic"))
        with pytest.raises(NotFound):
            await pair.copy("elastic")
        assert not [
            pod
            for client in (pair.local, pair.remote)
            for pod in await pair.pods(client)
            if pod["metadata"]["labels"].get("job-name") == "elastic"
        ]

    do(run())


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
def test_deletion_in_other_ways(pair: Pair, do: Do, propagation: str) -> None:
    name = propagation.lower()

    async def run() -> None:
        await pair.create(name, command="sleep 600")
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1, name)
        await pair.delete(name, propagation)
        await until_gone(pair.local, Key(JOBS, "default", name))
        with pytest.raises(NotFound):
            await pair.copy(name)
        here = [pod for pod in await pair.pods(pair.local) if is_named(pod, name)]
        there = [pod for pod in await pair.pods(pair.remote) if is_named(pod, name)]
        assert not here
        assert len(there) == (1 if propagation == "Orphan" else 0)
        for pod in there:
            await pair.remote.write(Delete(Key(PODS, "default", pod["metadata"]["name"])))

    do(run())


def test_a_ttl_removes_job_and_copy(pair: Pair, do: Do) -> None:
    async def run() -> None:
        await pair.create("brief", ttlSecondsAfterFinished=0)
        await until_gone(pair.local, Key(JOBS, "default", "brief"))
        with pytest.raises(NotFound):
            await pair.copy("brief")

    do(run())


def test_failures_come_back_with_their_reason(pair: Pair, do: Do) -> None:
    async def run() -> None:
        await pair.create("bad", command="exit 4", backoffLimit=0)
        job = await pair.until(is_failed, "bad")
        assert condition(job, "Failed")["reason"] == "BackoffLimitExceeded"
        assert job["status"]["failed"] == 1

    do(run())


def test_deleting_a_pod_here_deletes_it_there(pair: Pair, do: Do) -> None:
    async def run() -> None:
        uid = await pair.create("kick", command="[ -e kicked ] || sleep 600", backoffLimit=3,
                                podReplacementPolicy="Failed")  # fmt: skip
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1, "kick")
        first = next(pod for pod in await pair.pods(pair.local) if is_of(pod, uid))
        await pair.local.write(Delete(Key(PODS, "default", first["metadata"]["name"])))
        await pair.until(lambda job: job["status"].get("failed") == 1, "kick")
        await until_gone(pair.local, Key(PODS, "default", first["metadata"]["name"]))
        await pair.delete("kick")
        await until_gone(pair.local, Key(JOBS, "default", "kick"))

    do(run())


def test_config_is_copied_when_asked_for(pair: Pair, do: Do) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "words"},
              "data": {"word": "hello"}}  # fmt: skip
    env = [{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "words", "key": "word"}}}]
    wish = {names.COPY_CONFIG: "configmaps"}

    async def run() -> None:
        test = 'test "$WORD" = hello'
        await pair.create("reads", command=test, container={"env": env}, annotations=wish)
        job = await pair.until(trouble("ConfigNotCopied"), "reads")
        assert "configmap words" in condition(job)["message"]
        assert "retrying at" in condition(job)["message"]
        await pair.local.write(Create("configmaps", "default", msgspec.json.encode(config)))
        await pair.until(is_complete, "reads")
        await pair.delete("reads")
        await until_gone(pair.local, Key(JOBS, "default", "reads"))
        await until_gone(pair.remote, Key("configmaps", "default", "words"))
        foreign = {**config, "data": {"word": "other"}}
        await pair.remote.write(Create("configmaps", "default", msgspec.json.encode(foreign)))
        await pair.create("reads", command=test, container={"env": env}, annotations=wish)
        job = await pair.until(trouble("ConfigNotCopied"), "reads")
        assert "is not a copy of the local one" in condition(job)["message"]
        there = await read(pair.remote, "configmaps", "words")
        assert there["data"] == {"word": "other"}

    do(run())


def test_a_name_that_is_taken(pair: Pair, do: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_FIRST_DELAY", 60.0)

    async def run() -> None:
        other = a_job("taken", command="sleep 600", suspend=True)
        del other["spec"]["managedBy"]
        await pair.remote.write(Create(JOBS, "default", msgspec.json.encode(other)))
        before = await pair.copy("taken")
        await pair.create("taken")
        job = await pair.until(trouble("NameTaken"), "taken")
        assert "delete it there" in condition(job)["message"]
        # Events in between do not count as an attempt.
        for number in range(5):
            body = msgspec.json.encode({"metadata": {"annotations": {"touched": str(number)}}})
            await pair.local.write(Patch(Key(JOBS, "default", "taken"), body, "merge"))
        assert "attempt 1," in condition(await pair.job("taken"))["message"]
        await pair.delete("taken")
        await until_gone(pair.local, Key(JOBS, "default", "taken"))
        after = await pair.copy("taken")
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert after["spec"] == before["spec"]

    do(run())


@pytest.mark.parametrize("answer", ["Fail", "Restart"])
def test_deleted_copy_is_handled(pair: Pair, do: Do, answer: str) -> None:
    name = f"deleted-{answer.lower()}"
    ledger = pair.folder / name
    go = pair.folder / f"{name}-go"
    command = f"echo started >> {ledger}; while [ ! -e {go} ]; do sleep 0.05; done"

    async def run() -> None:
        await pair.create(name, command=command, annotations={names.WHEN_COPY_DELETED: answer})
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1, name)
        first = (await pair.copy(name))["metadata"]["uid"]
        await pair.remote.write(Delete(Key(JOBS, "default", name), "Background"))
        if answer == "Restart":
            await pair.until(lambda job: '"attempt":2' in str(job["metadata"]), name)
            go.touch()
            await pair.until(is_complete, name)
            assert (await pair.copy(name))["metadata"]["uid"] != first
            assert ledger.read_text() == "started\nstarted\n"
        else:
            job = await pair.until(is_failed, name)
            assert condition(job, "Failed")["reason"] == "MirrorCopyDeleted"
            assert "create the Job again" in condition(job, "Failed")["message"]
            with pytest.raises(NotFound):
                await pair.copy(name)
            assert ledger.read_text() == "started\n"

    do(run())


def test_edited_copy_is_corrected(pair: Pair, do: Do) -> None:
    async def run() -> None:
        await pair.create("edited", command="sleep 600", parallelism=1, completions=5)
        await pair.until(lambda job: job.get("status", {}).get("active") == 1, "edited")
        body = msgspec.json.encode({"spec": {"parallelism": 3}})
        await pair.remote.write(Patch(Key(JOBS, "default", "edited"), body, "merge"))
        await pair.until_copy(lambda copy: copy["spec"]["parallelism"] == 1, "edited")
        await pair.delete("edited")
        await until_gone(pair.local, Key(JOBS, "default", "edited"))

    do(run())


def test_mirror_records_events(pair: Pair, do: Do) -> None:
    async def run() -> None:
        uid = await pair.create("told")
        await pair.until(is_complete, "told")
        async with asyncio.timeout(30):
            while True:
                events = await pair.local.list(Selection(EVENTS, "default"))
                found = [msgspec.json.decode(document) for document in events.documents]
                reasons = {
                    event["reason"] for event in found if event["involvedObject"]["uid"] == uid
                }
                if reasons >= {"CopyCreated", "CopyChanged"}:
                    return
                await asyncio.sleep(0.05)

    do(run())


KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [{"name": "t", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "t", "user": {"token": "secret"}}],
    "contexts": [{"name": "t", "context": {"cluster": "t", "user": "t"}}],
    "current-context": "t",
}


def changed(section: str, **fields: object) -> bytes:
    field = section.removesuffix("s")
    entry = {**KUBECONFIG[section][0][field], **fields}  # type: ignore[index]
    return msgspec.json.encode({**KUBECONFIG, section: [{"name": "t", field: entry}]})


@pytest.mark.parametrize(
    ("case", "text", "reason", "says"),
    [
        ("no-target", None, "TargetMissing", "onejob mirror add"),
        ("rubbish", b"\x00rubbish", "InvalidKubeconfig", "not a kubeconfig"),
        ("exec", changed("users", exec={"command": "x"}), "InvalidKubeconfig", "runs a program"),
        ("refused", changed("clusters"), "Unreachable", "127.0.0.1:1"),
    ],
)
def test_targets_that_cannot_be_used(
    pair: Pair, do: Do, case: str, text: bytes | None, reason: str, says: str
) -> None:
    async def run() -> None:
        name = f"via-{case}"
        if text is not None:
            await add_target(pair.local, case, text)
        await pair.create(name, target=case)
        job = await pair.until(trouble(reason), name)
        assert says in condition(job)["message"]
        assert "retrying at" in condition(job)["message"]
        await pair.delete(name)
        # Nothing ever ran there, so nothing blocks the deletion.
        await until_gone(pair.local, Key(JOBS, "default", name))

    do(run())


def test_credentials_and_certificates_that_are_refused(pair: Pair, do: Do) -> None:
    good = msgspec.json.decode(pair.there.kubeconfig.read_bytes())
    wrong_token = msgspec.json.decode(msgspec.json.encode(good))
    wrong_token["users"][0]["user"] = {"token": "expired"}
    wrong_authority = msgspec.json.decode(msgspec.json.encode(good))
    ours = msgspec.json.decode(pair.here.kubeconfig.read_bytes())
    authority = ours["clusters"][0]["cluster"]["certificate-authority-data"]
    wrong_authority["clusters"][0]["cluster"]["certificate-authority-data"] = authority

    async def run() -> None:
        for name, config, reason in (
            ("expired", wrong_token, "BadCredentials"),
            ("stranger", wrong_authority, "WrongCertificate"),
        ):
            await add_target(pair.local, name, msgspec.json.encode(config))
            await pair.create(name, target=name)
            job = await pair.until(trouble(reason), name)
            assert f"onejob mirror add {name} --replace" in condition(job)["message"]
            mended = {"data": {"kubeconfig": base64.b64encode(msgspec.json.encode(good)).decode()}}
            key = Key("secrets", "default", name)
            await pair.local.write(Patch(key, msgspec.json.encode(mended), "merge"))
            await pair.until(is_complete, name)

    do(run())


def test_a_lost_target_holds_a_deleted_job_until_its_time_is_over(pair: Pair, do: Do) -> None:
    async def run() -> None:
        await add_target(pair.local, "lost", pair.there.kubeconfig.read_bytes())
        await pair.create("held", command="sleep 600", target="lost")
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1, "held")
        key = Key("secrets", "default", "lost")
        broken = {"data": {"kubeconfig": base64.b64encode(b"rubbish").decode()}}
        await pair.local.write(Patch(key, msgspec.json.encode(broken), "merge"))
        await pair.delete("held")
        job = await pair.until(trouble("InvalidKubeconfig"), "held")
        assert "may still be running" in condition(job)["message"]
        assert names.LOST_AFTER in condition(job)["message"]
        await pair.patch({"metadata": {"annotations": {names.LOST_AFTER: "10ms"}}}, "held")
        await until_gone(pair.local, Key(JOBS, "default", "held"))
        assert (await pair.copy("held"))["status"]["active"] == 1
        events = await pair.local.list(Selection(EVENTS, "default"))
        told = [msgspec.json.decode(document) for document in events.documents]
        assert [event["message"] for event in told if event["reason"] == "CopyAbandoned"]
        await pair.remote.write(Delete(Key(JOBS, "default", "held"), "Background"))

    do(run())


def test_deleted_job_of_lost_target_reports_why_it_is_kept(pair: Pair, do: Do) -> None:
    async def run() -> None:
        await add_target(pair.local, "lost-later", pair.there.kubeconfig.read_bytes())
        await pair.create("kept", target="lost-later")
        await pair.until(is_complete, "kept")
        await pair.local.write(Delete(Key("secrets", "default", "lost-later")))
        await pair.delete("kept")
        job = await pair.until(trouble("TargetMissing"), "kept")
        assert is_complete(job)
        await pair.patch({"metadata": {"annotations": {names.LOST_AFTER: "10ms"}}}, "kept")
        await until_gone(pair.local, Key(JOBS, "default", "kept"))
        await pair.remote.write(Delete(Key(JOBS, "default", "kept"), "Background"))

    do(run())


def test_a_namespace_goes_with_its_mirrored_jobs(pair: Pair, do: Do) -> None:
    """Even if the Secret with the credentials is deleted first."""

    async def run() -> None:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brief"}}
        await pair.local.write(Create("namespaces", "", msgspec.json.encode(namespace)))
        await add_target(pair.local, "there", pair.there.kubeconfig.read_bytes(), "brief")
        job = a_job("inside", command="sleep 600", annotations={names.NAMESPACE: "default"})
        await pair.local.write(Create(JOBS, "brief", msgspec.json.encode(job)))
        key = Key(JOBS, "brief", "inside")
        await until(pair.local, key, lambda job: job.get("status", {}).get("ready") == 1)
        await pair.local.write(Delete(Key("namespaces", "", "brief")))
        await until_gone(pair.local, Key("namespaces", "", "brief"))
        with pytest.raises(NotFound):
            await pair.copy("inside")

    do(run())


def test_moving_to_another_target_waits_until_the_first_copy_is_gone(
    pair: Pair, do: Do, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"

    async def run() -> None:
        # A second name for the same cluster, and another namespace there.
        await add_target(pair.local, "second", pair.there.kubeconfig.read_bytes())
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
        await pair.remote.write(Create("namespaces", "", msgspec.json.encode(namespace)))
        command = f"echo started >> {ledger}; trap 'echo ended >> {ledger}; exit 0' TERM; " + (
            "while true; do sleep 0.05; done"
        )
        await pair.create("moves", command=command)
        await pair.until(lambda job: job.get("status", {}).get("ready") == 1, "moves")
        there = {names.TARGET: "second", names.NAMESPACE: "elsewhere"}
        await pair.patch({"metadata": {"annotations": there}}, "moves")
        key = Key(JOBS, "elsewhere", "moves")
        await until(
            pair.local,
            Key(JOBS, "default", "moves"),
            lambda _: ledger.read_text().count("started") == 2,
        )
        assert ledger.read_text() == "started\nended\nstarted\n"
        with pytest.raises(NotFound):
            await pair.copy("moves")
        await until(pair.remote, key, lambda copy: copy["spec"]["suspend"] is False)
        await pair.delete("moves")
        await until_gone(pair.local, Key(JOBS, "default", "moves"))

    do(run())
