"""Watches across errors, on a scripted API server without TLS."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import aclosing
from random import Random
from typing import Any

from onejob.cli.remote.resuming import ResumingClient
from onejob.client.base import Selection, WatchEvent
from onejob.client.credentials import Credential, FixedCredential
from onejob.client.kubeconfig import Connection
from onejob.objects.meta import JOBS, PODS


def an_object(name: str, revision: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "x", "uid": name, "resourceVersion": str(revision)}
    return {"metadata": metadata}


def an_event(kind: str, name: str, revision: int) -> str:
    return json.dumps({"type": kind, "object": an_object(name, revision)}) + "\n"


def a_list(revision: int, *names: str) -> str:
    items = [an_object(name, revision) for name in names]
    metadata = {"resourceVersion": str(revision)}
    return json.dumps({"kind": "JobList", "metadata": metadata, "items": items})


def expired() -> str:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    return json.dumps({"type": "ERROR", "object": status}) + "\n"


class Scripted:
    """Server that answers each request with the next of its texts; None closes the connection."""

    def __init__(self, answers: Sequence[tuple[int, str] | None]) -> None:
        self._answers = list(answers)
        self.targets: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.targets.append(head.split(b" ")[1].decode())
        if not self._answers:
            await reader.read()
        elif (answer := self._answers.pop(0)) is not None:
            code, text = answer
            length = len(text.encode())
            head_line = (
                f"HTTP/1.1 {code} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
            )
            writer.write(head_line.encode() + text.encode())
            await writer.drain()
        writer.close()


async def watched(
    answers: Sequence[tuple[int, str] | None], count: int, resource: str = JOBS
) -> tuple[list[tuple[str, str]], Scripted, list[str], int]:
    """Return the first `count` events, the server, the notices and the number of new lists."""
    script = Scripted(answers)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    notices: list[str] = []
    observed: list[WatchEvent] = []
    client = ResumingClient(
        Connection(f"http://127.0.0.1:{port}", FixedCredential(Credential())),
        rng=Random(1),
        notice=notices.append,
        observe=observed.append,
    )
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(60):
        async with aclosing(client.watch(Selection(resource, "x"), after=0)) as batches:
            async for batch in batches:
                found += [(event.type, event.key.name) for event in batch]
                if len(found) >= count:
                    break
        await client.close()
        server.close()
    assert len(observed) == (len(found) if resource == PODS else 0)
    return found, script, notices, client.relists


def test_watch_continues_after_the_last_revision_when_the_connection_is_lost() -> None:
    answers = [
        (200, a_list(5, "a")),
        (200, an_event("MODIFIED", "a", 7)),
        None,
        (200, an_event("DELETED", "a", 9)),
    ]
    found, script, notices, _ = asyncio.run(watched(answers, 3))
    assert found == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert "resourceVersion=5" in script.targets[1]
    assert all("resourceVersion=7" in target for target in script.targets[2:4])
    assert len(notices) == 2
    assert "connection lost" in notices[0]
    assert notices[1] == "connected again"


def test_watch_lists_again_and_reports_deletions_when_the_revision_has_expired() -> None:
    answers = [
        (200, a_list(5, "a", "b")),
        (200, an_event("MODIFIED", "a", 7) + expired()),
        (200, a_list(20, "b", "c")),
    ]
    found, script, _, relists = asyncio.run(watched(answers, 6))
    assert found[3:] == [("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "c")]
    assert relists == 1
    assert "watch" not in script.targets[2]


def test_watch_survives_a_server_that_refuses_for_a_while_after_its_start() -> None:
    refusal = (403, json.dumps({"kind": "Status", "reason": "Forbidden", "message": "not yet"}))
    answers = [refusal, (200, a_list(5, "a")), refusal, (200, an_event("MODIFIED", "a", 6))]
    found, _, _, _ = asyncio.run(watched(answers, 2))
    assert found == [("ADDED", "a"), ("MODIFIED", "a")]


def test_watch_observes_pods_before_they_are_delivered() -> None:
    found, _, _, _ = asyncio.run(watched([(200, a_list(5, "a", "b"))], 2, PODS))
    assert found == [("ADDED", "a"), ("ADDED", "b")]
