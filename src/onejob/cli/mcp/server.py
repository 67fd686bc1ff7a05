"""Tools of the MCP server. Those that write exist only if writing is allowed."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeAlias

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations
from pydantic import Field

from onejob import __version__
from onejob.cli.mcp.calls import Answer, Commands

#: Maximum size of a manifest in characters.
MAX_MANIFEST: Final = 256 * 1024
_MAX_WAIT_SECONDS: Final = 300
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_INSTRUCTIONS: Final = """\
onejob runs Kubernetes batch/v1 Jobs on one machine. Check a manifest with validate before submit. \
After submit, use wait, then results and logs. If a Job does not succeed, use why: it states the \
cause, the evidence and the next step. A fixed Job needs another name, or use rerun."""

Name: TypeAlias = Annotated[str, Field(description="Name of the object, without its kind")]
JobName: TypeAlias = Annotated[str, Field(description="Name of the Job")]
Manifest: TypeAlias = Annotated[
    str, Field(description="YAML or JSON of one or more objects", max_length=MAX_MANIFEST)
]
_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WRITES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=False, open_world_hint=False
)


def make_server(where: Sequence[str], namespace: str, *, allow_write: bool) -> MCPServer[Any]:
    """Return a server whose calls are limited to `namespace`."""
    server: MCPServer[Any] = MCPServer(
        "onejob", instructions=_INSTRUCTIONS, version=__version__, log_level="ERROR"
    )
    commands = Commands((*where, "--namespace", namespace))
    _add_reading_tools(server, commands, namespace)
    if allow_write:
        _add_writing_tools(server, commands, namespace)
    return server


def _add_reading_tools(server: MCPServer[Any], commands: Commands, namespace: str) -> None:
    @server.tool(annotations=_READS)
    async def validate(manifest: Manifest) -> str:
        """Check a manifest like the API server, without creating anything."""
        return _text(
            await Commands(("--namespace", namespace)).call("validate", "-", stdin=manifest)
        )

    @server.tool(annotations=_READS)
    async def jobs() -> str:
        """List the Jobs of the namespace with their status."""
        return _text(await commands.call("get", "jobs"))

    @server.tool(annotations=_READS)
    async def why(name: Name, kind: Literal["job", "cronjob", "pod"] = "job") -> str:
        """Explain the state of an object: cause, evidence, what happens next."""
        return _text(await commands.call("why", f"{kind}/{_checked(name)}"))

    @server.tool(annotations=_READS)
    async def logs(
        name: Name,
        kind: Literal["job", "pod"] = "job",
        tail: Annotated[int, Field(ge=1, le=1000, description="Last lines of each container")] = 50,
        pattern: Annotated[str, Field(description="Only lines matching this regex")] = "",
    ) -> str:
        """Print the last lines that a Pod, or each Pod of a Job, has written."""
        chosen = [f"{kind}/{_checked(name)}", f"--tail={tail}"]
        return _text(
            await commands.call("logs", *chosen, *([f"--grep={pattern}"] if pattern else []))
        )

    @server.tool(annotations=_READS)
    async def results(job: JobName, failed: bool = False) -> str:
        """Show parameters, exit code, time and result of each index of a Job."""
        flags = ["--failed"] if failed else []
        return _text(await commands.call("results", f"job/{_checked(job)}", *flags))

    @server.tool(annotations=_READS)
    async def queue() -> str:
        """Show queued Jobs and the reasons why they wait."""
        return _text(await commands.call("queue"))

    @server.tool(annotations=_READS)
    async def wait(
        job: JobName,
        seconds: Annotated[int, Field(ge=1, le=_MAX_WAIT_SECONDS)] = 60,
    ) -> str:
        """Wait until a Job is Complete or Failed, or for the given time."""
        words = ("wait", f"job/{_checked(job)}", f"--timeout={seconds}s")
        answer = await commands.call(*words, waiting_seconds=seconds)
        # A failed Job is an answer to this question, not an error of the tool.
        return _text(answer, accepted=(0, 1))


def _add_writing_tools(server: MCPServer[Any], commands: Commands, namespace: str) -> None:
    @server.tool(annotations=_WRITES)
    async def submit(manifest: Manifest) -> str:
        """Create the objects of a manifest, in the namespace of this server only."""
        _require_namespace(manifest, namespace)
        return _text(await commands.call("create", "-f", "-", stdin=manifest))

    @server.tool(annotations=_WRITES)
    async def rerun(
        job: JobName,
        failed_only: bool = False,
        settings: Annotated[
            dict[str, str] | None, Field(description="Other values of parameters or variables")
        ] = None,
    ) -> str:
        """Run a finished Job again under a new name, or only its failed indexes."""
        words = [f"--set={name}={value}" for name, value in (settings or {}).items()]
        if failed_only:
            words.append("--failed-only")
        return _text(await commands.call("rerun", f"job/{_checked(job)}", *words))


def _checked(name: str) -> str:
    """Return the name, which becomes a word of a command line. Raises ToolError."""
    if not _NAME.fullmatch(name):
        raise ToolError(f"{name!r} is not the name of an object")
    return name


def _require_namespace(text: str, namespace: str) -> None:
    """Raise ToolError for objects outside of the namespace. Other mistakes are the server's."""
    import yaml

    from onejob.wire.kinds import KINDS

    cluster_wide = {kind.kind for kind in KINDS if not kind.namespaced}
    try:
        documents = list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except (yaml.YAMLError, RecursionError) as error:
        raise ToolError(f"not a YAML document: {' '.join(str(error).split())}") from None
    for document in _objects(documents):
        if document.get("kind") in cluster_wide:
            raise ToolError(f"{document['kind']} is not an object of namespace {namespace}")
        metadata = document.get("metadata")
        wanted = metadata.get("namespace", namespace) if isinstance(metadata, dict) else namespace
        if wanted != namespace:
            raise ToolError(f"namespace {wanted!r}: this server writes only to {namespace}")


def _objects(documents: list[Any]) -> list[dict[str, Any]]:
    """Return all objects, also those inside Lists. Aliases may make a List contain itself."""
    found: dict[int, dict[str, Any]] = {}
    waiting = list(documents)
    while waiting:
        document = waiting.pop()
        if isinstance(document, dict) and id(document) not in found:
            found[id(document)] = document
            items = document.get("items")
            waiting += items if isinstance(items, list) else []
    return list(found.values())


def _text(answer: Answer, accepted: Sequence[int] = (0,)) -> str:
    if answer.exit_code not in accepted:
        raise ToolError(answer.text or f"the command ended with code {answer.exit_code}")
    return answer.text
