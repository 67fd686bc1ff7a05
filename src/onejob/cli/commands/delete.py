"""`onejob delete`: delete objects together with their dependents, or kept runs."""

from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_file, complete_kind_or_object
from onejob.cli.display.durations import duration
from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import client_options

if TYPE_CHECKING:
    from onejob.cli.resource_args import ResourceArg
    from onejob.cli.sources.base import Api
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob delete job/pi                    # a Job and its Pods
  onejob delete jobs -l app=etl           # by label
  onejob delete -f job.yaml               # the objects of a file
  onejob delete job/pi --cascade=orphan   # keep its Pods
  onejob delete run/20260131-120000       # a kept run, with its logs"""


@click.command(epilog=_EPILOG, short_help="Delete objects")
@click.argument(
    "what", nargs=-1, metavar="TYPE NAME... | TYPE/NAME...", shell_complete=complete_kind_or_object
)
@click.option(
    "-f",
    "--filename",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_file,
    help="Delete the objects of a manifest.",
)
@click.option("-l", "--selector", default="", metavar="LABELS", help="By labels.")
@click.option(
    "--all", "everything", is_flag=True, help="Delete all objects of the kind in the namespace."
)
@click.option(
    "--cascade",
    type=click.Choice(["background", "foreground", "orphan"]),
    default="background",
    show_default=True,
    help="How to delete dependent objects such as Pods.",
)
@click.option(
    "--grace-period", type=int, default=-1, metavar="N", help="Grace period of Pods in seconds."
)
@click.option("--now", is_flag=True, help="Same as --grace-period 1.")
@click.option("--force", is_flag=True, help="With --grace-period 0: do not wait for Pods.")
@click.option("--ignore-not-found", is_flag=True, help="Ignore objects that do not exist.")
@click.option("--wait/--no-wait", default=True, help="Wait until the objects are deleted.")
@click.option("--timeout", type=duration, metavar="DURATION", help="Maximum time to wait.")
@click.option(
    "--dry-run", type=click.Choice(["server"]), help="Check the request without deleting anything."
)
@click.option(
    "--reason", default="", metavar="TEXT", help="Reason, which onejob why shows until it is gone."
)
@client_options
def command(
    what: tuple[str, ...],
    filename: tuple[str, ...],
    selector: str,
    everything: bool,
    ignore_not_found: bool,
    wait: bool,
    timeout: float | None,
    dry_run: str | None,
    reason: str,
    where: "Sources",
    **options: Any,
) -> int:
    """Delete objects of the server, or kept runs (which expire after 7 days)."""
    import msgspec

    from onejob.cli.resource_args import parse_resource_args
    from onejob.cli.sources.base import ApiRequest, path_of
    from onejob.wire.errors import NotFound

    if ids := _run_ids(what):
        if dry_run:
            raise CommandError(
                "--dry-run does not support kept runs", "use it only for objects of a server"
            )
        return _delete_runs(where, ids, ignore_not_found=ignore_not_found)
    if not filename:
        # Parse the arguments before contacting the server, so that usage errors are reported first.
        parse_resource_args(what, known=where.kinds())
    api = where.require_server()
    doomed = _chosen(where, api, what, filename, selector, everything)
    if not doomed:
        print("No resources found.")
        return 0
    asked = _delete_options(**options)
    if dry_run:
        asked["dryRun"] = ["All"]
    body = msgspec.json.encode(asked)
    removed = []
    for arg, namespace in doomed:
        try:
            if reason and not dry_run:
                _record_reason(api, arg, namespace, reason)
            api.send(ApiRequest("DELETE", path_of(arg.kind, namespace, arg.name), body=body))
        except NotFound:
            if not ignore_not_found:
                raise
        else:
            note = " (dry run)" if dry_run else ""
            print(f'{arg.type} "{arg.name}" deleted{note}', flush=True)
            removed.append((arg, namespace))
    if wait and not dry_run and not options["force"]:
        _wait_until_gone(api, removed, timeout)
    return 0


def _record_reason(api: "Api", arg: "ResourceArg", namespace: str, reason: str) -> None:
    import msgspec

    from onejob.cli.sources.base import FIELD_MANAGER, ApiRequest, path_of
    from onejob.planning.names import REASON_ANNOTATION

    change = {"metadata": {"annotations": {REASON_ANNOTATION: reason}}}
    api.send(
        ApiRequest(
            "PATCH",
            path_of(arg.kind, namespace, arg.name),
            {"fieldManager": FIELD_MANAGER},
            body=msgspec.json.encode(change),
            content_type="application/merge-patch+json",
        )
    )


def _run_ids(what: tuple[str, ...]) -> list[str]:
    """Return the ids or names of `run/ID...` or `run ID...`; [] if other objects are named."""
    if what and what[0] in ("run", "runs"):
        if len(what) == 1:
            raise CommandError("which run?", "specify run/ID; onejob runs lists them")
        return list(what[1:])
    kept = [word.partition("/")[2] for word in what if word.startswith(("run/", "runs/"))]
    if kept and len(kept) != len(what):
        raise CommandError(
            "cannot delete runs and objects of a server together", "delete them separately"
        )
    if kept and not all(kept):
        raise CommandError("run/: missing ID", "onejob runs lists them")
    return kept


def _delete_runs(where: "Sources", ids: list[str], *, ignore_not_found: bool) -> int:
    from onejob.cli.kept_runs import delete_run, run_with_id, runs_of_job

    runs = where.data_dir.runs
    for wanted in ids:
        found = run_with_id(runs, wanted)
        of_job = [] if found is not None else list(runs_of_job(runs, wanted))
        if len(of_job) > 1:
            some = ", ".join(f"run/{run.id}" for _, run in of_job[:3])
            raise CommandError(
                f"run/{wanted} is ambiguous: {len(of_job)} runs have a Job of this name",
                f"specify one of them: {some}",
                exit_code=EXIT_FAILED,
            )
        for folder, run in (found,) if found is not None else of_job:
            delete_run(folder, run)
            print(f'run "{run.id}" deleted', flush=True)
            break
        else:
            if not ignore_not_found:
                raise CommandError(
                    f"run {wanted} not found", "onejob runs lists them", exit_code=EXIT_FAILED
                )
    return 0


def _chosen(
    where: "Sources",
    api: "Api",
    what: tuple[str, ...],
    files: tuple[str, ...],
    selector: str,
    everything: bool,
) -> "list[tuple[ResourceArg, str]]":
    """Return each object to delete with its namespace."""
    from onejob.cli.manifests.sending import manifest_namespace
    from onejob.cli.resource_args import ResourceArg, parse_resource_args
    from onejob.cli.sources.base import list_all

    namespace = where.namespace_in(api)
    if files:
        if what:
            raise CommandError("specify either files or names")
        from onejob.cli.manifests.loading import read_manifests

        return [
            (
                ResourceArg(manifest.kind, manifest.name),
                manifest_namespace(manifest, where.namespace),
            )
            for manifest in read_manifests(files, where.kinds())
        ]
    args = parse_resource_args(what, known=where.kinds())
    if all(arg.name for arg in args):
        return [(arg, namespace if arg.kind.namespaced else "") for arg in args]
    if not selector and not everything:
        raise CommandError("which ones?", "specify names, -l or --all")
    return [
        (ResourceArg(arg.kind, item["metadata"]["name"]), item["metadata"].get("namespace", ""))
        for arg in args
        for item in list_all(api, arg.kind, namespace, labelSelector=selector)
    ]


def _delete_options(cascade: str, grace_period: int, now: bool, force: bool) -> dict[str, Any]:
    if grace_period == 0 and not force:
        raise CommandError("--grace-period 0 may leave processes behind", "add --force, or --now")
    options: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": cascade.capitalize(),
    }
    seconds = 0 if force else 1 if now else grace_period
    return options if seconds < 0 else {**options, "gracePeriodSeconds": seconds}


def _wait_until_gone(
    api: "Api", removed: "list[tuple[ResourceArg, str]]", timeout: float | None
) -> None:
    from onejob.cli.sources.awaiting import WaitCondition, await_on_server
    from onejob.clock import SystemClock

    clock = SystemClock()
    deadline = None if timeout is None else clock.monotonic() + timeout
    for arg, namespace in removed:
        gone = await_on_server(api, arg, namespace, WaitCondition("delete"), clock, deadline)
        if gone is None:
            raise CommandError(
                f"{arg} is still being deleted",
                f"see onejob describe {arg.kind.singular}/{arg.name}",
                exit_code=EXIT_FAILED,
            )
