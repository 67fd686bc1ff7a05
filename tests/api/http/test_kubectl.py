"""The real kubectl against the real server: every common verb."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams
from onejob.client.base import Bind, Create, Delete, Patch
from onejob.objects.meta import Key
from tests.harness import HttpPlane, running_http

pytestmark = [
    pytest.mark.kubectl,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on the PATH"),
]

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: hello}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: ["true"]}]
"""


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Kubectl:
    plane: HttpPlane
    home: Path

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        environment = {
            **os.environ,
            "HOME": str(self.home),
            "KUBECONFIG": str(self.plane.kubeconfig),
        }
        return await asyncio.create_subprocess_exec(
            "kubectl",
            *arguments,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, stdin: str = "") -> Done:
        process = await self.start(*arguments)
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode is not None
        return Done(process.returncode, out.decode(), err.decode())

    async def ok(self, *arguments: str, stdin: str = "") -> str:
        done = await self.run(*arguments, stdin=stdin)
        assert done.code == 0, done
        return done.out


Test = Callable[[Kubectl], Coroutine[Any, Any, None]]


async def with_kubectl(directory: Path, test: Test, **options: Any) -> None:
    async with running_http(directory, **options) as plane:
        await test(Kubectl(plane, directory))


async def test_discovery_version_and_explain(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        resources = await kubectl.ok("api-resources")
        assert "cronjobs" in resources
        assert "batch/v1" in await kubectl.ok("api-versions")
        assert "Server Version: v1.37" in await kubectl.ok("version")
        assert "is running at https://127.0.0.1" in await kubectl.ok("cluster-info")
        assert "number of retries" in await kubectl.ok("explain", "job.spec.backoffLimit")
        assert await kubectl.ok("get", "--raw", "/readyz") == "ok"

    await with_kubectl(tmp_path, test)


async def test_who_am_i_and_what_may_i(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        assert "onejob-admin" in await kubectl.ok("auth", "whoami")
        assert await kubectl.ok("auth", "can-i", "create", "jobs") == "yes\n"
        assert "[*]" in await kubectl.ok("auth", "can-i", "--list")

    await with_kubectl(tmp_path, test)


async def test_create_get_and_delete(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        assert await kubectl.ok("create", "-f", "-", stdin=JOB) == "job.batch/hello created\n"
        again = await kubectl.run("create", "-f", "-", stdin=JOB)
        assert again.code == 1
        assert (
            '(AlreadyExists): error when creating "STDIN": jobs.batch "hello" already' in again.err
        )
        lines = (await kubectl.ok("get", "jobs", "-o", "wide")).splitlines()
        assert lines[0].split()[:5] == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
        assert "IMAGES" in lines[0]
        assert lines[1].split()[:3] == ["hello", "Running", "0/1"]
        shown = json.loads(await kubectl.ok("get", "job", "hello", "-o", "json"))
        assert (shown["apiVersion"], shown["kind"]) == ("batch/v1", "Job")
        listed = json.loads(await kubectl.ok("get", "jobs", "-o", "json"))
        assert (listed["items"][0]["apiVersion"], listed["items"][0]["kind"]) == ("batch/v1", "Job")
        assert "kind: Job" in await kubectl.ok("get", "job", "hello", "-o", "yaml")
        assert "hello" in await kubectl.ok("get", "all")
        assert "hello" in await kubectl.ok("get", "jobs", "--sort-by=.metadata.name")
        assert "Backoff Limit:" in await kubectl.ok("describe", "job", "hello")
        missing = await kubectl.run("get", "job", "nope")
        assert missing.err == 'Error from server (NotFound): jobs.batch "nope" not found\n'
        assert await kubectl.ok("delete", "job", "hello") == 'job.batch "hello" deleted\n'
        assert await kubectl.ok("get", "jobs", "-o", "name") == ""

    await with_kubectl(tmp_path, test)


async def test_imperative_create_sends_protobuf(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        await kubectl.ok("create", "namespace", "team")
        await kubectl.ok("create", "job", "j", "--image=busybox", "-n", "team", "--", "echo", "hi")
        command = "jsonpath={.spec.template.spec.containers[0].command}"
        assert await kubectl.ok("get", "job", "j", "-n", "team", "-o", command) == '["echo","hi"]'
        await kubectl.ok("create", "cronjob", "c", "--image=b", "--schedule=*/5 * * * *")
        await kubectl.ok("create", "job", "now", "--from=cronjob/c")
        assert "now" in await kubectl.ok("get", "jobs")
        await kubectl.ok("create", "configmap", "m", "--from-literal=a=b")
        assert await kubectl.ok("get", "cm", "m", "-o", "jsonpath={.data.a}") == "b"

    await with_kubectl(tmp_path, test)


async def test_bad_manifests_are_refused_in_words(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        typo = JOB.replace("spec:\n  template", "spec:\n  paralelism: 2\n  template", 1)
        strict = await kubectl.run("create", "-f", "-", stdin=typo)
        assert 'unknown field "spec.paralelism"' in strict.err
        warned = await kubectl.run("create", "-f", "-", "--validate=warn", stdin=typo)
        assert warned.code == 0
        assert 'Warning: unknown field "spec.paralelism"' in warned.err
        wrong = JOB.replace("restartPolicy: Never", "restartPolicy: Always")
        refused = await kubectl.run("create", "-f", "-", stdin=wrong)
        assert "spec.template.spec.restartPolicy" in refused.err

    await with_kubectl(tmp_path, test)


async def test_apply_is_idempotent(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        assert await kubectl.ok("apply", "-f", "-", stdin=JOB) == "job.batch/hello created\n"
        assert await kubectl.ok("apply", "-f", "-", stdin=JOB) == "job.batch/hello unchanged\n"
        suspended = JOB.replace("spec:\n  template", "spec:\n  suspend: true\n  template", 1)
        assert await kubectl.ok("apply", "-f", "-", stdin=suspended) == (
            "job.batch/hello configured\n"
        )
        assert "suspend: true" in await kubectl.ok("get", "job", "hello", "-o", "yaml")
        served = await kubectl.run("apply", "--server-side", "-f", "-", stdin=suspended)
        assert served.out == "job.batch/hello serverside-applied\n", served.err
        dry = await kubectl.ok("apply", "--dry-run=server", "-f", "-", stdin=suspended)
        assert "(server dry run)" in dry

    await with_kubectl(tmp_path, test)


async def test_label_annotate_and_the_three_patches(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        await kubectl.ok("create", "-f", "-", stdin=JOB)
        await kubectl.ok("label", "job", "hello", "a=1")
        await kubectl.ok("annotate", "job", "hello", "note=x")
        await kubectl.ok("patch", "job", "hello", "-p", '{"metadata":{"labels":{"b":"2"}}}')
        await kubectl.ok("patch", "job", "hello", "--type=merge", "-p", '{"spec":{"suspend":true}}')
        operations = '[{"op":"replace","path":"/spec/parallelism","value":3}]'
        await kubectl.ok("patch", "job", "hello", "--type=json", "-p", operations)
        job = json.loads(await kubectl.ok("get", "job", "hello", "-o", "json"))
        assert {"a": "1", "b": "2"}.items() <= job["metadata"]["labels"].items()
        assert job["metadata"]["annotations"]["note"] == "x"
        assert (job["spec"]["suspend"], job["spec"]["parallelism"]) == (True, 3)
        assert "hello" in await kubectl.ok("get", "jobs", "-l", "a=1,b in (2,3)")
        assert await kubectl.ok("get", "jobs", "-l", "a!=1", "-o", "name") == ""

    await with_kubectl(tmp_path, test)


async def test_wait_and_watch_see_changes(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        client = kubectl.plane.client

        def watches() -> float:
            return kubectl.plane.metrics.open_streams.value(verb="WATCH", resource="jobs")

        await kubectl.ok("create", "-f", "-", stdin=JOB)
        watch = await kubectl.start("get", "jobs", "-w")
        assert watch.stdout is not None
        async with asyncio.timeout(30):
            assert (await watch.stdout.readline()).split()[0] == b"NAME"
            assert (await watch.stdout.readline()).split()[0] == b"hello"
        waiting = asyncio.ensure_future(
            kubectl.ok("wait", "--for=jsonpath={.spec.suspend}=true", "job/hello", "--timeout=30s")
        )
        gone = asyncio.ensure_future(
            kubectl.ok("wait", "--for=delete", "job/hello", "--timeout=30s")
        )
        key = Key("jobs.batch", "default", "hello")
        await client.write(Patch(key, b'{"spec":{"suspend":true}}', "merge"))
        assert "condition met" in await waiting
        async with asyncio.timeout(30):
            assert (await watch.stdout.readline()).split()[0] == b"hello"
        # `wait` prints nothing about an object that was deleted before its watch began.
        async with asyncio.timeout(30):
            while watches() < 2:  # noqa: ASYNC110 - no event for new watches
                await asyncio.sleep(0.05)
        await client.write(Delete(key, "Background"))
        assert "condition met" in await gone
        watch.kill()
        await watch.communicate()

    await with_kubectl(tmp_path, test)


class Echo:
    """Session that echoes its command and its input."""

    async def exec(self, request: ExecRequest, streams: ExecStreams) -> int:
        await streams.write_stdout(" ".join(request.command).encode() + b"\n")
        while request.stdin and (typed := await streams.read_stdin()):
            await streams.write_stdout(typed.upper())
        await streams.write_stderr(b"done\n")
        return 3 if "fail" in request.command else 0


async def test_exec_speaks_the_protocol_of_kubectl(tmp_path: Path) -> None:
    async def test(kubectl: Kubectl) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default"},
            "spec": {"containers": [{"name": "c", "image": "busybox"}]},
        }
        client = kubectl.plane.client
        await client.write(Create("pods", "default", json.dumps(pod).encode()))
        await client.write(Bind(Key("pods", "default", "p"), "node"))
        running = b'{"status":{"phase":"Running"}}'
        await client.write(Patch(Key("pods", "default", "p"), running, "merge", "status"))
        done = await kubectl.run("exec", "-i", "p", "--", "say", "hi", stdin="abc")
        assert (done.code, done.out, done.err) == (0, "say hi\nABC", "done\n")
        failed = await kubectl.run("exec", "p", "--", "fail")
        assert failed.code == 3
        assert "command terminated with exit code 3" in failed.err

    await with_kubectl(tmp_path, test, sessions=Echo())
