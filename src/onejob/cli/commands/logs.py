"""`onejob logs`: container output, from a server or from a kept run."""

import sys
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_object
from onejob.cli.display.durations import duration
from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.cli.resource_args import ResourceArg
    from onejob.cli.sources.base import Api
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob logs job/pi                 # all Pods, with their names as prefix
  onejob logs job/train --index 54   # of one index
  onejob logs pi-x2k4p -c main       # one container of a Pod
  onejob logs -f job/pi              # follow
  onejob logs cronjob/nightly        # all existing Jobs of a CronJob
  onejob logs --tail 20 -l app=etl   # by label
  onejob logs --grep 'error|warn' --since 1h job/pi
  onejob logs --deleted              # list kept logs of deleted Pods
  onejob logs --deleted job/pi       # kept logs of a deleted Job"""


@click.command(epilog=_EPILOG, short_help="Print the logs of containers")
@click.argument(
    "what",
    nargs=-1,
    metavar="POD | job/NAME | cronjob/NAME | workflow/NAME",
    shell_complete=complete_object,
)
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="LABELS",
    help="Select Pods by labels instead of by name.",
)
@click.option("-c", "--container", default="", metavar="NAME", help="Print only this container.")
@click.option("--all-containers", is_flag=True, help="Include init containers.")
@click.option("-f", "--follow", is_flag=True, help="Follow the logs.")
@click.option(
    "-p",
    "--previous",
    is_flag=True,
    help="Print the logs of the previous instance of the container.",
)
@click.option(
    "--tail", type=int, metavar="N", default=-1, help="Print only the last lines of each container."
)
@click.option("--since", type=duration, metavar="DURATION", help="Print only newer lines, e.g. 5m.")
@click.option(
    "--since-time", default="", metavar="TIME", help="Print only lines after this time (RFC 3339)."
)
@click.option("--limit-bytes", type=int, metavar="N", help="Maximum number of bytes per container.")
@click.option("--timestamps", is_flag=True, help="Print the time of each line.")
@click.option(
    "--grep",
    default="",
    metavar="REGEX",
    help="Print only lines that match this regular expression.",
)
@click.option(
    "--deleted",
    is_flag=True,
    help="Print kept logs of deleted Pods; without a name, list them. Only for the server's user "
    "on its machine.",
)
@click.option(
    "--index",
    type=click.IntRange(0),
    metavar="N",
    help="Print only the logs of this index of a Job.",
)
@click.option("--prefix/--no-prefix", default=None, help="Prefix each line with its Pod.")
@runs_option
@client_options
def command(
    what: tuple[str, ...],
    selector: str,
    container: str,
    all_containers: bool,
    follow: bool,
    index: int | None,
    prefix: bool | None,
    where: "Sources",
    **options: Any,
) -> int:
    """Print the logs of a Pod, or of all Pods of a Job, CronJob or Workflow.

    With several Pods each line has a prefix, as with kubectl logs --all-pods --prefix.
    """
    from onejob.cli.reports.log_reading import LogQuery, containers_of, follow_all, print_logs

    _check_pattern(options["grep"])
    if options["deleted"]:
        if index is not None:
            raise CommandError("--index cannot be combined with --deleted", "specify a Pod")
        return _print_deleted(where, what, selector, container, follow, prefix, options)
    if index is not None and (selector or not what):
        raise CommandError("--index requires a Job", "for example onejob logs job/NAME --index 3")
    api, pods, labels = _pods(where, what, selector, index)
    if not pods:
        raise CommandError("no logs: no Pods found", exit_code=EXIT_FAILED)
    readings = [
        reading
        for pod in pods
        for reading in containers_of(
            pod,
            container,
            all_of_them=all_containers,
            label=labels.get(pod["metadata"]["uid"], ""),
        )
    ]
    tail = options["tail"]
    query = LogQuery(
        follow=follow,
        tail_lines=10 if selector and tail < 0 and not follow else tail,
        **_filters(options),
    )
    show_prefix = len(readings) > 1 if prefix is None else prefix
    if follow and len(readings) > 1:
        return follow_all(api, readings, query, prefix=show_prefix)
    return print_logs(api, readings, query, sys.stdout, prefix=show_prefix)


def _filters(options: dict[str, Any]) -> dict[str, Any]:
    return {
        "previous": options["previous"],
        "since_seconds": options["since"],
        "since_time": options["since_time"],
        "limit_bytes": options["limit_bytes"],
        "timestamps": options["timestamps"],
        "pattern": options["grep"],
    }


def _check_pattern(text: str) -> None:
    import re

    try:
        re.compile(text)
    except re.error as error:
        raise CommandError(f"--grep {text}: {error}") from None


def _print_deleted(
    where: "Sources",
    what: tuple[str, ...],
    selector: str,
    container: str,
    follow: bool,
    prefix: bool | None,
    options: dict[str, Any],
) -> int:
    from onejob.cli.reports.kept_logs import find_kept, has_kept, list_kept, print_kept
    from onejob.cli.reports.log_reading import LogQuery
    from onejob.cli.resource_args import one_resource_arg

    if follow or selector:
        raise CommandError(
            "--deleted cannot be combined with --follow or --selector", "specify a name"
        )
    if not what:
        return list_kept(where)
    arg = one_resource_arg(what, default="pod")
    if len(what) == 1 and "/" not in what[0] and not has_kept(where, arg):
        job = one_resource_arg(what, default="job")
        if has_kept(where, job):
            print(f"note: {arg} does not exist; showing {job}", file=sys.stderr)
            arg = job
    found = find_kept(where, arg)
    query = LogQuery(tail_lines=options["tail"], **_filters(options))
    return print_kept(found, container, query, sys.stdout, prefix=prefix)


def _pods(
    where: "Sources", what: tuple[str, ...], selector: str, index: int | None
) -> "tuple[Api, list[dict[str, Any]], dict[str, str]]":
    """Return the Pods and, by UID, the parameters of those that have some."""
    from onejob.cli.reports.kept_logs import has_kept
    from onejob.cli.resource_args import one_resource_arg
    from onejob.cli.sources.base import get, list_all
    from onejob.cli.sources.pods import owners, pods_of_job
    from onejob.objects.meta import CRONJOBS, JOBS, PODS, WORKFLOWS
    from onejob.wire.errors import NotFound
    from onejob.wire.kinds import BY_RESOURCE

    pod_kind = BY_RESOURCE[PODS]
    if selector:
        if what:
            raise CommandError("specify either a name or a selector")
        api = where.selected_source()
        found = list_all(api, pod_kind, where.namespace_in(api), labelSelector=selector)
        return api, found, {}
    arg = one_resource_arg(what, default="pod" if index is None else "job")
    if arg.kind.resource != JOBS and index is not None:
        raise CommandError(f"{arg} has no indexes", "--index requires job/NAME")
    if len(what) == 1 and "/" not in what[0] and (job := where.job_instead_of(arg)) is not None:
        print(f"note: {arg} does not exist; showing {job}", file=sys.stderr)
        arg = job
    try:
        api, namespace = where.holding(arg)
    except NotFound as missing:
        meant = [arg] if "/" in what[0] else [arg, one_resource_arg(what, default="job")]
        kept = next((one for one in meant if has_kept(where, one)), None)
        if kept is None:
            raise
        raise _deleted_error(missing.message, kept) from None
    document = get(api, arg.kind, namespace, arg.name)
    if arg.kind.resource == PODS:
        return api, [document], {}
    if arg.kind.resource in (CRONJOBS, WORKFLOWS):
        jobs = list_all(api, BY_RESOURCE[JOBS], namespace)
        own = [job for job in jobs if document["metadata"]["uid"] in owners(job)]
    elif arg.kind.resource == JOBS:
        own = [document]
    else:
        raise CommandError(
            f"{arg.kind.kind}s have no logs", "specify a Pod, a Job, a CronJob or a Workflow"
        )
    pods = [pod for job in own for pod in pods_of_job(api, job)]
    if index is not None:
        pods = _of_index(own[0], pods, index)
    if not pods and has_kept(where, arg):
        raise _deleted_error(f"the Pods of {arg} no longer exist", arg)
    pods = sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"])
    return api, pods, _labels(api, own, pods)


def _labels(api: "Api", jobs: list[dict[str, Any]], pods: list[dict[str, Any]]) -> dict[str, str]:
    """Return the index and parameters of Pods, by UID: `17 seed=54 lr=0.01`."""
    from onejob.cli.sources.pods import owners

    labels = {}
    for job in jobs:
        if not job["metadata"].get("annotations"):
            continue
        from onejob.cli.reports.lineage import index_titles

        titles = index_titles(api, job)
        for pod in pods:
            if job["metadata"]["uid"] in owners(pod) and (title := titles(pod)):
                labels[pod["metadata"]["uid"]] = title
    return labels


def _of_index(job: dict[str, Any], pods: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    """Return the Pods of an index, numbered as in `onejob results`. Raises CommandError."""
    from onejob.planning.job.indexes import read_index
    from onejob.planning.job.rerun import origins_of
    from onejob.planning.names import INDEX_ANNOTATION

    name = job["metadata"]["name"]
    origins = origins_of(job)
    own = index if origins is None else next(
        (number for number, origin in enumerate(origins) if origin == index), None
    )  # fmt: skip
    found = [
        pod
        for pod in pods
        if own is not None
        and read_index(pod["metadata"].get("annotations", {}).get(INDEX_ANNOTATION)) == own
    ]
    if not found:
        succeeded = origins is not None and own is None
        raise CommandError(
            f"job/{name} has no Pod of index {index}",
            "it succeeded in an earlier run: add --run ID (onejob runs lists them)"
            if succeeded
            else f"onejob results {name} lists its indexes",
            exit_code=EXIT_FAILED,
        )
    return found


def _deleted_error(what: str, kept: "ResourceArg") -> CommandError:
    """Return the error that points to the kept logs of a deleted object."""
    return CommandError(
        what,
        f"see the kept logs with onejob logs --deleted {kept.kind.singular}/{kept.name}",
        exit_code=EXIT_FAILED,
    )
