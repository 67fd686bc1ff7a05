"""`onejob graph`: the graph of a workflow, of a file, a server or a kept run."""

import sys
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_file_or_object
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob graph flow.yaml           # of a file, without running it
  onejob graph workflow/etl        # with the state of each task
  onejob graph flow.yaml -o mermaid   # for a Markdown page"""

#: Width of a drawing that is not for a terminal.
_WIDTH = 120


@click.command(epilog=_EPILOG, short_help="Draw the graph of a workflow")
@click.argument("what", metavar="FILE | workflow/NAME", shell_complete=complete_file_or_object)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "mermaid"]),
    default="text",
    help="Output format. [default: text]",
)
@runs_option
@client_options
def command(what: str, output: str, where: "Sources") -> int:
    """Draw the tasks of a Workflow or CronWorkflow and their dependencies.

    A file is checked first, as by onejob validate.
    """
    import msgspec

    from onejob.objects.workflow import read_workflow

    documents = _documents(what, where)
    for number, document in enumerate(documents):
        workflow = read_workflow(msgspec.json.encode(document))
        if output == "mermaid":
            from onejob.cli.workflows.mermaid import mermaid

            lines = mermaid(workflow)
        else:
            lines = _drawing(workflow)
        if number:
            print()
        if len(documents) > 1 and output == "text":
            print(f"workflow/{workflow.metadata.name}:")
        print("\n".join(lines))
    return 0


def _drawing(workflow: Any) -> list[str]:
    from onejob.cli.display.terminal import UNLIMITED, terminal_of
    from onejob.cli.workflows.drawing import draw

    width = terminal_of().width
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower()
    plain = not encoding.startswith("utf")
    return draw(workflow, _WIDTH if width == UNLIMITED else width, ascii_only=plain)


def _documents(what: str, where: "Sources") -> list[dict[str, Any]]:
    import os

    if "/" in what and not os.path.lexists(what):
        kind = what.partition("/")[0].lower()
        if kind.partition(".")[0].removeprefix("cron") in ("workflow", "workflows", "wf"):
            return [_stored(what, where)]
    return _of_file(what)


def _stored(what: str, where: "Sources") -> dict[str, Any]:
    from onejob.cli.resource_args import one_resource_arg
    from onejob.cli.sources.base import get
    from onejob.objects.meta import CRONWORKFLOWS

    arg = one_resource_arg((what,), known=where.kinds())
    api, namespace = where.holding(arg)
    document = get(api, arg.kind, namespace, arg.name)
    if api.ended is not None:
        for task in document.get("status", {}).get("tasks", ()):
            if task["state"] == "Running":
                task["state"] = "Stopped"
    return _template(document) if arg.kind.resource == CRONWORKFLOWS else document


def _of_file(file: str) -> list[dict[str, Any]]:
    """Return the valid workflows of a file. Raises CommandError."""
    from onejob.cli.manifests.checking import manifest_problems
    from onejob.cli.manifests.loading import InvalidManifests, read_manifests
    from onejob.clock import SystemClock
    from onejob.gates import FeatureGates
    from onejob.objects.meta import CRONWORKFLOWS, WORKFLOWS

    wanted = [
        manifest
        for manifest in read_manifests((file,))
        if manifest.kind.resource in (WORKFLOWS, CRONWORKFLOWS)
    ]
    if not wanted:
        raise CommandError(f"{file}: no Workflow to draw", "kind: Workflow, or workflow/NAME")
    now = SystemClock().now()
    for manifest in wanted:
        problems = manifest_problems(manifest, "default", FeatureGates(), now)
        if problems:
            raise InvalidManifests(problems[:1])
    return [
        _template(manifest.document)
        if manifest.kind.resource == CRONWORKFLOWS
        else manifest.document
        for manifest in wanted
    ]


def _template(cron: dict[str, Any]) -> dict[str, Any]:
    """Return a workflow as a CronWorkflow would create it."""
    return {"metadata": cron["metadata"], "spec": cron["spec"]["workflowTemplate"]["spec"]}
