"""`onejob why`: cause, evidence and what happens next, in plain words."""

from typing import TYPE_CHECKING, Any

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.cli.clients.base import Api
    from onejob.cli.clients.sources import Sources
    from onejob.planning.pod.placement import NodeView

_EPILOG = """\b
Examples:
  onejob why job/pi
  onejob why pi -n batch"""


@click.command(epilog=_EPILOG, short_help="Tell why a Job is in its state")
@click.argument("what", nargs=-1, metavar="job/NAME")
@runs_option
@client_options
def command(what: tuple[str, ...], where: "Sources") -> int:
    """Tell why a Job is in its state and what happens next.

    The answer comes from the same code that decides about the Job.
    """
    from onejob.cli.clients.base import get
    from onejob.cli.clients.pods import pods_of_job
    from onejob.cli.clients.resource_args import one_resource_arg
    from onejob.cli.display.explaining import explain_job
    from onejob.clock import SystemClock
    from onejob.objects.meta import JOBS

    arg = one_resource_arg(what, default="job")
    if arg.kind.resource != JOBS:
        raise CommandError(f"onejob why explains Jobs, not {arg.kind.plural}", "name job/NAME")
    api, namespace = where.holding(arg)
    job = get(api, arg.kind, namespace, arg.name)
    pods = pods_of_job(api, job)
    answer = explain_job(job, pods, SystemClock().now(), node=_node(api, pods), ended=api.ended)
    print(answer.state)
    for title, texts in (
        ("Why", answer.cause),
        ("Evidence", answer.evidence),
        ("Next", answer.next),
    ):
        if texts:
            print(f"\n{title}:")
            for text in texts:
                print(f"  - {text}")
        if title == "Evidence" and answer.shown_failure is not None:
            for line in _last_log_lines(api, namespace, *answer.shown_failure):
                print(f"    | {line}")
    return 0


def _node(api: "Api", pods: list[dict[str, Any]]) -> "NodeView | None":
    """The only node there is; only asked for if there are Pods that have none."""
    from onejob.cli.clients.base import list_all
    from onejob.cli.run.pod_waits import read_node
    from onejob.objects.meta import NODES
    from onejob.wire.kinds import BY_RESOURCE

    if all(pod["spec"].get("nodeName") for pod in pods):
        return None
    nodes = list_all(api, BY_RESOURCE[NODES], "")
    return read_node(nodes[0]) if len(nodes) == 1 else None


def _last_log_lines(api: "Api", namespace: str, pod: str, container: str) -> list[str]:
    from onejob.cli.clients.base import Ask, path_of
    from onejob.objects.meta import PODS
    from onejob.wire.errors import ApiError
    from onejob.wire.kinds import BY_RESOURCE

    path = path_of(BY_RESOURCE[PODS], namespace, pod, "log")
    try:
        reply = api.send(Ask("GET", path, {"container": container, "tailLines": "5"}))
    except ApiError:
        # Logs may be gone before their Pod is; the rest of the answer stands without them.
        return []
    return reply.body.decode("utf-8", "replace").splitlines()
