"""Logs and exec sessions of stand-in Pods, forwarded to the remote API server.

This is independent of the controller, so that it also works for finished Jobs: the local Pod names
its target, and the Secret of that name contains the connection settings.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

import msgspec

from onejob.api.sessions.pod_streams import ExecRequest, ExecStreams
from onejob.client.base import Client
from onejob.client.kubeconfig import InvalidKubeconfig
from onejob.controllers.mirror.controller import read_target
from onejob.objects.job import read_job
from onejob.objects.meta import JOBS, Key
from onejob.objects.pod import read_pod
from onejob.planning.mirror import names
from onejob.wire.errors import ApiError, InternalError, NotFound
from onejob.wire.requests import LogOptions

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

    from onejob.client.http import HttpClient

Document = dict[str, Any]

_PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_FORGED: Final = "does not represent a Pod of a mirrored Job"
_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255


@asynccontextmanager
async def _opened(client: Client, pod: Document) -> "AsyncGenerator[tuple[HttpClient, str], None]":
    """Connect to the remote server of a stand-in; yield the client and the remote Pod's path.

    Raises:
        NotFound: if the target is unusable, or the remote Pod does not belong to the local Job.
    """
    metadata = pod["metadata"]
    target = names.target_of_node(pod["spec"]["nodeName"])
    try:
        connection, _ = await read_target(client, metadata["namespace"], target)
    except InvalidKubeconfig as error:
        raise NotFound(f"pod {metadata['name']} runs on target {target}: {error}") from error
    namespace = metadata.get("annotations", {}).get(names.REMOTE_NAMESPACE, metadata["namespace"])
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(metadata['name'], safe='')}"
    origin = await _origin(client, pod)
    from onejob.client.answers import UNTRUSTED
    from onejob.client.http import HttpClient

    http = HttpClient(connection, rng=Random(), limits=UNTRUSTED)
    try:
        if not origin or _origin_there(await http.get_raw(path)) != origin:
            raise NotFound(f"pod {metadata['name']} {_FORGED}")
        yield http, path
    except ApiError as error:
        error.message = f"on target {target}: {error.message}"
        raise
    finally:
        await http.close()


async def _origin(client: Client, pod: Document) -> str:
    """Return the UID of the local Job that the Pod belongs to; "" if there is none.

    A user who may create Pods can create one that names any target and any Pod there. Only the
    label of the remote Pod, which that user cannot write, proves that it belongs to the Job.
    """
    owner = read_pod(msgspec.json.encode(pod)).metadata.controller_ref
    if owner is None or owner.kind != "Job":
        return ""
    try:
        job = read_job(await client.get(Key(JOBS, pod["metadata"]["namespace"], owner.name)))
    except NotFound:
        return ""
    return job.metadata.uid if job.metadata.uid == owner.uid else ""


def _origin_there(document: bytes) -> str:
    """Return the origin label of a remote Pod, or "".

    The remote server may respond with arbitrary data.
    """
    try:
        return read_pod(document).metadata.labels.get(names.ORIGIN, "")
    except msgspec.DecodeError:
        return ""


async def remote_logs(
    client: Client, pod: Document, container: str, options: LogOptions
) -> AsyncGenerator[bytes, None]:
    """Iterate over the log of the remote container."""
    query = {
        "container": container,
        "follow": "true" if options.follow else "",
        "previous": "true" if options.previous else "",
        "timestamps": "true" if options.timestamps else "",
        "tailLines": _text(options.tail_lines),
        "limitBytes": _text(options.limit_bytes),
        "sinceSeconds": _text(options.since_seconds),
        "sinceTime": options.since_time.isoformat() if options.since_time is not None else "",
    }
    async with _opened(client, pod) as (http, path):
        given = {name: value for name, value in query.items() if value}
        async for piece in http.stream(f"{path}/log?{urlencode(given)}"):
            yield piece


def _text(number: int | None) -> str:
    """Return a query value; "" for None."""
    return "" if number is None else str(number)


async def remote_session(
    client: Client, pod: Document, request: ExecRequest, streams: ExecStreams
) -> int:
    """Run exec, or attach if there is no command. Return the exit code."""
    wanted = [("container", request.container)]
    wanted += [("command", word) for word in request.command]
    for name in ("stdin", "stdout", "stderr", "tty"):
        if getattr(request, name):
            wanted.append((name, "true"))
    verb = "exec" if request.command else "attach"
    async with _opened(client, pod) as (http, path):
        socket = await http.web_socket(f"{path}/{verb}?{urlencode(wanted)}", _PROTOCOLS)
        helping = [asyncio.create_task(_resize(socket, streams))] if request.tty else []
        if request.stdin:
            helping.append(asyncio.create_task(_type(socket, streams)))
        try:
            return await _copy_output(socket, streams)
        finally:
            for task in helping:
                task.cancel()
            await asyncio.gather(*helping, return_exceptions=True)
            await socket.close()


async def _type(socket: "ClientConnection", streams: ExecStreams) -> None:
    """Send the client's input, and its end if the protocol has one."""
    while data := await streams.read_stdin():
        await socket.send(bytes([_STDIN]) + data)
    if socket.subprotocol == _PROTOCOLS[0]:
        await socket.send(bytes([_CLOSE, _STDIN]))


async def _resize(socket: "ClientConnection", streams: ExecStreams) -> None:
    """Send all changes of the client's terminal size, until cancelled."""
    while True:
        size = await streams.next_size()
        body = msgspec.json.encode({"Width": size.width, "Height": size.height})
        await socket.send(bytes([_RESIZE]) + body)


async def _copy_output(socket: "ClientConnection", streams: ExecStreams) -> int:
    """Copy the output of the remote session to the client; return the exit code."""
    async for message in _messages(socket):
        data = message if isinstance(message, bytes) else message.encode()
        channel, content = data[0] if data else -1, data[1:]
        if channel == _STDOUT and content:
            await streams.write_stdout(content)
        elif channel == _STDERR and content:
            await streams.write_stderr(content)
        elif channel == _STATUS and content:
            return _exit_code(content)
    raise InternalError("the remote cluster closed the connection")


async def _messages(socket: "ClientConnection") -> AsyncGenerator[bytes | str, None]:
    """Yield messages until the connection ends, normally or not."""
    from websockets.exceptions import ConnectionClosed

    try:
        async for message in socket:
            yield message
    except ConnectionClosed:
        return


def _exit_code(content: bytes) -> int:
    """Return the exit code in a Status. Raises InternalError, ApiError."""
    try:
        status: Document = msgspec.json.decode(content)
    except msgspec.DecodeError:
        raise InternalError(content.decode("utf-8", "replace")) from None
    if status.get("status") == "Success":
        return 0
    for cause in status.get("details", {}).get("causes", ()):
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise InternalError(str(status.get("message") or "the command failed"))
