"""`onejob mcp` with the client of the official SDK, against a real server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import yaml
from mcp import Client, StdioServerParameters
from mcp.types import TextContent

from tests.cli.command_line import CommandLine

READING = {"validate", "jobs", "why", "logs", "results", "queue", "wait"}
WRITING = {"submit", "rerun"}


@asynccontextmanager
async def agent(onejob: CommandLine, *options: str) -> AsyncIterator[Client]:
    command, *words = onejob.arguments("mcp", *options)
    server = StdioServerParameters(
        command=command, args=words, env=onejob.environment, cwd=onejob.home
    )
    async with Client(server) as client:
        yield client


async def asked(client: Client, tool: str, **arguments: Any) -> tuple[bool, str]:
    """Return whether the tool failed, and its text."""
    result = await client.call_tool(tool, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    return bool(result.is_error), content.text


def a_job(name: str, script: str, **metadata: str) -> str:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script]}
    pod = {"restartPolicy": "Never", "containers": [container]}
    return yaml.safe_dump(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, **metadata},
            "spec": {"backoffLimit": 0, "template": {"spec": pod}},
        }
    )


async def test_agent_finds_out_why_a_job_failed_and_fixes_it(served: CommandLine) -> None:
    async with agent(served, "--allow-write") as client:
        typing_error = a_job("count", "true").replace("backoffLimit", "backofLimit")
        failed, text = await asked(client, "validate", manifest=typing_error)
        assert failed
        assert "spec.backofLimit" in text

        broken = a_job("count", "echo reading; cat /nonexistent-input")
        assert await asked(client, "submit", manifest=broken) == (
            False, "job.batch/count created",
        )  # fmt: skip
        assert "Failed" in (await asked(client, "wait", job="count"))[1]
        why = (await asked(client, "why", name="count"))[1]
        assert "BackoffLimitExceeded" in why
        assert "nonexistent-input" in why
        assert "nonexistent-input" in (await asked(client, "logs", name="count"))[1]

        fixed = a_job("count-2", "echo 42 > /dev/termination-log")
        await asked(client, "submit", manifest=fixed)
        assert "Complete" in (await asked(client, "wait", job="count-2"))[1]
        assert "42" in (await asked(client, "results", job="count-2"))[1]
        listed = (await asked(client, "jobs"))[1]
        assert "count-2" in listed
        failed, text = await asked(client, "rerun", job="count-2")
        assert not failed, text
        assert "count-2-rerun-1 created" in text
        assert not (await asked(client, "queue"))[0]


async def test_server_is_read_only_without_the_option(served: CommandLine) -> None:
    async with agent(served) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == READING
        assert all(
            tool.annotations is not None and tool.annotations.read_only_hint
            for tool in (await client.list_tools()).tools
        )
        result = await client.call_tool("submit", {"manifest": a_job("no", "true")})
        assert result.is_error
    async with agent(served, "--allow-write") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert names == READING | WRITING
    assert served.run("get", "job", "no").returncode == 1


LOOP = "apiVersion: v1\nkind: List\nitems: [&a {kind: List, items: [*a]}]\n"


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (a_job("far", "true", namespace="kube-system"), "this server writes only to default"),
        (json.dumps({"kind": "List", "items": [{"kind": "Namespace"}]}), "Namespace is not an"),
        ("a: [", "not a YAML document"),
        (LOOP, "error"),
    ],
)
async def test_submit_is_limited_to_the_namespace(
    served: CommandLine, manifest: str, problem: str
) -> None:
    async with agent(served, "--allow-write") as client:
        failed, text = await asked(client, "submit", manifest=manifest)
    assert failed
    assert problem in text


@pytest.mark.parametrize("name", ["--all", "a b", "x/y", "", "-f", "A"])
async def test_names_are_not_taken_for_options(served: CommandLine, name: str) -> None:
    async with agent(served) as client:
        failed, text = await asked(client, "why", name=name)
    assert failed
    assert "is not the name of an object" in text


async def test_output_is_bounded(served: CommandLine) -> None:
    script = (
        "i=0; while [ $i -lt 900 ]; do echo line $i with some more text in it; i=$((i+1)); done"
    )
    async with agent(served, "--allow-write") as client:
        await asked(client, "submit", manifest=a_job("long", script))
        await asked(client, "wait", job="long")
        _, text = await asked(client, "logs", name="long", tail=1000)
        _, last = await asked(client, "logs", name="long", tail=1)
    assert len(text) < 21_000
    assert text.endswith("[cut off after 20000 characters: ask for less]")
    assert last.endswith("line 899 with some more text in it")


async def test_agent_has_the_permissions_of_its_kubeconfig(served: CommandLine) -> None:
    kubeconfig = served.home / "viewer.kubeconfig"
    words = ("viewer", "--role", "view", "-n", "default", "--kubeconfig-out", str(kubeconfig))
    added = served.run("user", "add", *words)
    assert added.returncode == 0, added.stderr
    async with agent(served, "--allow-write", "--kubeconfig", str(kubeconfig)) as client:
        assert not (await asked(client, "jobs"))[0]
        failed, text = await asked(client, "queue")
        assert not failed, text
        assert "Jobs of other namespaces cannot be listed" in text
        failed, text = await asked(client, "submit", manifest=a_job("denied", "true"))
    assert failed
    assert "forbidden" in text


def test_absent_sdk_is_named_in_one_line(onejob: CommandLine) -> None:
    (onejob.home / "mcp.py").write_text("raise ImportError('absent')")
    path = f"{onejob.home}:{onejob.environment['PYTHONPATH']}"
    refused = onejob.run("mcp", PYTHONPATH=path)
    assert refused.returncode == 2
    assert "onejob mcp needs the package mcp" in refused.stderr
    assert refused.stderr.count("\n") == 1
