"""Dynamic admission of exec, attach and portforward: their parameters are the reviewed object."""

from typing import Final

import msgspec

from onejob.api.decoding.query import Query, first, flag
from onejob.api.http.routing import ResourcePath
from onejob.api.service import Service
from onejob.api.strategy import Document
from onejob.wire.errors import BadRequest
from onejob.wire.requests import Target, User, WriteOptions

_FLAGS: Final = ("stdin", "stdout", "stderr", "tty")
#: Parameters that are lists, by subresource.
_LISTS: Final = {"exec": "command", "portforward": "ports"}


class _Options(msgspec.Struct):
    """PodExecOptions, PodAttachOptions or PodPortForwardOptions."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False
    container: str = ""
    command: list[str] | None = None
    ports: list[int] | None = None


async def admitted_query(service: Service, target: ResourcePath, query: Query, user: User) -> Query:
    """Return the parameters of a session as dynamic admission leaves them. Raises ApiError."""
    place = Target(target.kind, target.namespace, target.name, target.subresource)
    given = _document(target, query)
    body, _ = await service.admitted("CONNECT", place, given, None, WriteOptions(user))
    return query if body == given else _query(body)


def _document(target: ResourcePath, query: Query) -> Document:
    """Return the parameters as upstream shows them to admission."""
    subresource = target.kind.subresource(target.subresource)
    assert subresource is not None
    document: Document = {"kind": subresource.kind, "apiVersion": "v1"}
    if target.subresource != "portforward":
        document |= {name: True for name in _FLAGS if flag(query, name)}
        if container := first(query, "container"):
            document["container"] = container
    values = list(query.get(_LISTS.get(target.subresource, ""), ()))
    if target.subresource == "exec":
        document["command"] = values or None
    elif target.subresource == "portforward" and values:
        document["ports"] = [int(value) for value in values if value.isdigit()]
    return document


def _query(document: Document) -> Query:
    """Return mutated parameters as those of a request. Raises BadRequest."""
    try:
        options = msgspec.convert(document, _Options)
    except msgspec.ValidationError as error:
        raise BadRequest(f"invalid {document.get('kind')} after admission: {error}") from error
    found = {name: ["true"] for name in _FLAGS if getattr(options, name)}
    if options.container:
        found["container"] = [options.container]
    if options.command:
        found["command"] = options.command
    if options.ports:
        found["ports"] = [str(port) for port in options.ports]
    return found
