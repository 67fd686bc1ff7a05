"""`onejob why`: cause, evidence and what happens next, in plain words."""

from typing import TYPE_CHECKING, Any

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from datetime import datetime

    from onejob.cli.clients.base import Api
    from onejob.cli.clients.resource_args import ResourceArg
    from onejob.cli.clients.sources import Sources
    from onejob.cli.display.explanation import Explanation
    from onejob.planning.pod.placement import NodeView

_EPILOG = """\b
Examples:
  onejob why job/pi
  onejob why pi -n batch
  onejob why pod/pi-x2k4p            # why it waits, failed or is restarted
  onejob why cronjob/nightly         # why it started no Job, and when the next one comes
  onejob why run/20260131-120000     # the Jobs of a kept run"""


@click.command(epilog=_EPILOG, short_help="Tell why something is in its state")
@click.argument("what", nargs=-1, metavar="job/NAME | pod/NAME | cronjob/NAME | run/ID")
@runs_option
@client_options
def command(what: tuple[str, ...], where: "Sources") -> int:
    """Tell why a Job, Pod or CronJob is in its state and what happens next.

    The answer comes from the same code that decides about it.
    """
    from onejob.cli.clients.resource_args import one_resource_arg

    if len(what) == 1 and what[0].startswith("run/"):
        return _explain_run(where, what[0].removeprefix("run/"))
    _explain_object(where, one_resource_arg(what, default="job"))
    return 0


def _explain_run(where: "Sources", wanted: str) -> int:
    from msgspec.structs import replace

    from onejob.cli.clients.resource_args import ResourceArg
    from onejob.cli.run.runs import find_run, run_state
    from onejob.objects.meta import JOBS
    from onejob.wire.kinds import BY_RESOURCE

    folder, _ = find_run(where.data_dir.runs, wanted)
    state, run = run_state(folder)
    code = "" if run.exit_code is None else f", exit code {run.exit_code}"
    by = f", stopped by {run.stopped_by}" if run.stopped_by else ""
    print(f"run/{run.id} is {state}{by}{code}.")
    for job in run.jobs:
        print()
        chosen = replace(where, run=run.id, only_runs=True, namespace=job.namespace)
        _explain_object(chosen, ResourceArg(BY_RESOURCE[JOBS], job.name))
    return 0


def _explain_object(where: "Sources", arg: "ResourceArg") -> None:
    from onejob.objects.meta import CRONJOBS, JOBS, PODS

    explain = {JOBS: _job, PODS: _pod, CRONJOBS: _cronjob}.get(arg.kind.resource)
    if explain is None:
        raise CommandError(
            f"onejob why explains Jobs, Pods, CronJobs and runs, not {arg.kind.plural}",
            "name job/NAME",
        )
    from onejob.cli.clients.base import get
    from onejob.clock import SystemClock

    api, namespace = where.holding(arg)
    document = get(api, arg.kind, namespace, arg.name)
    _print(api, namespace, explain(api, document, SystemClock().now()))


def _job(api: "Api", job: dict[str, Any], now: "datetime") -> "Explanation":
    from onejob.cli.clients.pods import pods_of_job
    from onejob.cli.display.explaining import explain_job

    pods = pods_of_job(api, job)
    return explain_job(job, pods, now, node=_node(api, pods), ended=api.ended)


def _pod(api: "Api", pod: dict[str, Any], now: "datetime") -> "Explanation":
    from onejob.cli.display.explaining_pods import explain_pod

    return explain_pod(pod, now, node=_node(api, [pod]), ended=api.ended)


def _cronjob(api: "Api", cronjob: dict[str, Any], now: "datetime") -> "Explanation":
    from onejob.cli.clients.base import list_all
    from onejob.cli.clients.pods import owners
    from onejob.cli.display.explaining_cronjobs import explain_cronjob
    from onejob.clock import local_zone
    from onejob.objects.meta import JOBS
    from onejob.wire.kinds import BY_RESOURCE

    metadata = cronjob["metadata"]
    jobs = list_all(api, BY_RESOURCE[JOBS], metadata["namespace"])
    own = [job for job in jobs if metadata["uid"] in owners(job)]
    return explain_cronjob(cronjob, own, now, local_zone=local_zone())


def _print(api: "Api", namespace: str, answer: "Explanation") -> None:
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
