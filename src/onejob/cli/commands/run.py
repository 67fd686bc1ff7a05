"""`onejob run`: a whole control plane in this process, for as long as its Jobs take."""

import os
import sys
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.completing import complete_file
from onejob.cli.display.durations import duration
from onejob.cli.errors import CommandError
from onejob.cli.options import (
    CommandAfterDashes,
    controller_options,
    data_dir_option,
    node_options,
    require_runtime,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onejob.cli.run.manifests import Manifest
    from onejob.gates import FeatureGates
    from onejob.node.options import NodeOptions
    from onejob.planning.job.parameter_rows import Row
    from onejob.planning.queue.limits import Limits

_EPILOG = """\b
Examples:
  onejob run job.yaml                         # one file; several, folders and - work too
  onejob run https://example.com/job.yaml     # from the web; only what you would run as a script
  onejob run -k overlays/test                 # what kustomize makes of a folder
  onejob run -n batch ci/                     # into a namespace, which is created if need be
  onejob run -- ./train.py --epochs 3         # a Job without YAML
  onejob run --completions 8 --parallelism 4 --indexed -- sh -c 'echo $JOB_COMPLETION_INDEX'
  onejob run --params grid.csv -- ./train.py --lr={lr}      # one Pod for each row of a table
  onejob run --param lr=0.1,0.01 --param seed=1,2,3 -- ./train.py {lr} {seed}
  onejob run --resume train                   # what did not succeed in its last run
  onejob run --dry-run=client -o yaml -- date   # the YAML of such a Job
  onejob run -o json job.yaml | jq .outcome   # for scripts
  onejob run -o raw -- ./report.py > report.csv   # what it writes, byte for byte
  onejob run --queue '*=2' jobs/              # two Jobs at a time, in the order of the files
  onejob run --junit report.xml --output-dir logs/ ci/
\b
A run ends at once, with the reason, when its Pods can never start: a missing ConfigMap, Secret
or key, a request larger than this machine, an image that cannot be had. --keep-waiting waits.
\b
Exit code: 0 every Job is Complete, 1 one Failed, could not start or took longer than --timeout,
2 bad input (nothing was started), 130 interrupted (its Pods were stopped); with --exit-code
that of the only container."""


@click.command(cls=CommandAfterDashes, epilog=_EPILOG, short_help="Run Jobs to the end")
@click.argument(
    "files", nargs=-1, metavar="[FILE]... [-- COMMAND [ARG]...]", shell_complete=complete_file
)
@click.option(
    "-f",
    "--filename",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_file,
    help="The same as FILE, as kubectl has it.",
)
@click.option(
    "-k",
    "--kustomize",
    default="",
    metavar="FOLDER",
    help="What kustomize, or kubectl kustomize, makes of it.",
)
@click.option(
    "-n", "--namespace", default="default", metavar="NAME", help="For manifests that name none."
)
@click.option("--name", default="", metavar="NAME", help="The Job's name, with -- COMMAND.")
@click.option(
    "--image", default="", metavar="IMAGE", help="The container's image, with -- COMMAND."
)
@click.option(
    "--completions", type=click.IntRange(0), metavar="N", help="Successful Pods, with -- COMMAND."
)
@click.option(
    "--parallelism", type=click.IntRange(1), metavar="N", help="Pods at a time, with -- COMMAND."
)
@click.option("--indexed", is_flag=True, help="Give each Pod JOB_COMPLETION_INDEX.")
@click.option(
    "--retries",
    type=click.IntRange(0),
    metavar="N",
    help="How often to try again after a failure (each index by itself, with --indexed), with "
    "-- COMMAND. [default: 0]",
)
@click.option("--deadline", type=duration, metavar="DURATION", help="The Job's, e.g. 10m.")
@click.option("-e", "--env", multiple=True, metavar="NAME[=VALUE]", help="With -- COMMAND.")
@click.option(
    "--params",
    default="",
    metavar="FILE",
    shell_complete=complete_file,
    help="A .csv, .jsonl or .txt file: one Pod for each row, which the command names as {column}.",
)
@click.option(
    "--param",
    multiple=True,
    metavar="NAME=V1,V2,...",
    help="One Pod for each value; with several, for each combination.",
)
@click.option(
    "--resume",
    default="",
    metavar="RUN",
    help="Go on with what a kept run did not finish: its id, or its Job's name.",
)
@click.option("--timeout", type=duration, metavar="DURATION", help="Of the whole run.")
@click.option(
    "--keep-waiting",
    is_flag=True,
    help="Wait on for what Pods need and nobody will bring: a ConfigMap, room, an image.",
)
@click.option("--ephemeral", is_flag=True, help="Keep nothing for later commands.")
@click.option("--exit-code", is_flag=True, help="Exit as the container of the only Pod did.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "raw"]),
    help="Print a result; raw: exactly what containers write. All else goes to stderr.",
)
@click.option(
    "--output-dir",
    default="",
    metavar="FOLDER",
    help="Write what each Pod writes to a file there: POD.log.",
)
@click.option("--junit", default="", metavar="FILE", help="Write a JUnit report there.")
@click.option("--plain", is_flag=True, help="Lines instead of a live display.")
@click.option("-q", "--quiet", is_flag=True, help="Print only what failed.")
@click.option(
    "--dry-run",
    type=click.Choice(["client"]),
    help="Check all files, print what would be created (-o yaml or json), start nothing.",
)
@node_options
@controller_options
@data_dir_option
def command(
    files: tuple[str, ...],
    filename: tuple[str, ...],
    after_dashes: tuple[str, ...] | None,
    namespace: str,
    timeout: float | None,
    output: str | None,
    dry_run: str | None,
    node: "NodeOptions",
    gates: "FeatureGates",
    default_failed_pods_limit: int | None,
    queue_limits: "Limits | None",
    data_dir: str | None,
    **options: Any,
) -> int:
    """Run Jobs to the end on this machine, show their logs and progress, exit accordingly.

    FILE holds Jobs and what they need (ConfigMap, Secret, Namespace). No server is needed, and
    runs neither share nor disturb anything. Each is kept for 7 days: onejob get, logs, describe
    and why find it by its Job's name.
    """
    from onejob.cli.run.plan import plan_run
    from onejob.clock import SystemClock

    files += filename
    if timeout is not None and timeout <= 0:
        raise CommandError("--timeout must be more than nothing")
    if options["resume"]:
        if files or after_dashes is not None:
            raise CommandError("--resume takes no files and no command", "they are in the run")
        manifests = _unfinished(options["resume"], data_dir)
        if not manifests:
            return 0
    else:
        manifests = _manifests(files, after_dashes, options)
    now = SystemClock().now()
    plan = plan_run(manifests, namespace, gates, now, check_only=dry_run is not None)
    if dry_run:
        if output == "raw":
            raise CommandError("-o raw is what containers write", "leave it out with --dry-run")
        for notice in plan.notices:
            print(f"note: {notice}", file=sys.stderr)
        return _print_documents([item.document for item in plan.objects], output)
    require_runtime(node)
    output_dir, junit = _report_places(options["output_dir"], options["junit"])
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.run.session import SessionOptions, run_session

    return run_session(
        plan,
        SessionOptions(
            data_dir=None if options["ephemeral"] else find_data_dir(data_dir),
            node=node,
            gates=gates,
            default_failed_pods_limit=default_failed_pods_limit,
            queue_limits=queue_limits,
            timeout_seconds=timeout,
            keep_waiting=options["keep_waiting"],
            output=output,
            output_dir=output_dir,
            junit=junit,
            plain=options["plain"],
            quiet=options["quiet"],
            container_exit_code=options["exit_code"],
            arguments=tuple(sys.argv[1:]),
        ),
    )


def _manifests(
    files: tuple[str, ...], command_line: tuple[str, ...] | None, options: dict[str, Any]
) -> "list[Manifest]":
    from onejob.cli.run.manifests import read_kustomized, read_manifests

    folder = options["kustomize"]
    if folder and (files or command_line is not None):
        raise CommandError("-k takes no other files and no command", "see onejob run --help")
    if command_line is None:
        if not files and not folder:
            raise CommandError("nothing to run", "give a file, or -- and a command")
        for option in (
            "name", "image", "completions", "parallelism", "retries", "deadline", "env", "params",
            "param",
        ):  # fmt: skip
            if options[option] not in ("", None, ()):
                raise CommandError(f"--{option} describes a command", "give one after --")
        return read_kustomized(folder) if folder else read_manifests(files)
    if files:
        raise CommandError("give files or a command, not both", "see onejob run --help")
    if not command_line:
        raise CommandError("there is no command after --")
    from onejob.cli.run.job_from_command import HOST_IMAGE, CommandJob, job_document
    from onejob.cli.run.manifests import made_manifest

    deadline = options["deadline"]
    rows = _rows(options)
    document = job_document(
        CommandJob(
            command=command_line,
            name=options["name"],
            image=options["image"] or HOST_IMAGE,
            completions=options["completions"] if rows is None else len(rows),
            parallelism=_parallelism(options["parallelism"], rows),
            indexed=options["indexed"] or rows is not None,
            retries=options["retries"] or 0,
            deadline_seconds=None if deadline is None else max(1, round(deadline)),
            env=options["env"],
        ),
        dict(os.environ),
    )
    documents = [document]
    if rows is not None:
        from onejob.cli.run.params import add_parameters

        documents.insert(0, add_parameters(document, rows, command_line))
    return [made_manifest(made, number=number) for number, made in enumerate(documents, 1)]


def _unfinished(wanted: str, data_dir: str | None) -> "list[Manifest]":
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.run.resuming import unfinished_manifests

    place = find_data_dir(data_dir)
    place.require_trusted()
    run, manifests = unfinished_manifests(place.runs, wanted)
    if not manifests:
        print(f"run {run.id}: everything has succeeded, nothing is left to do")
    return manifests


def _rows(options: dict[str, Any]) -> "list[Row] | None":
    if not options["params"] and not options["param"]:
        return None
    if options["completions"] is not None:
        raise CommandError("--completions is the number of rows", "leave it out with --params")
    from onejob.cli.run.params import read_parameters

    return read_parameters(options["params"], options["param"])


def _parallelism(asked: int | None, rows: "list[Row] | None") -> int | None:
    """A sweep runs as many at a time as there are processors, unless it is told otherwise."""
    if asked is not None or rows is None:
        return asked
    return min(len(rows), len(os.sched_getaffinity(0)))


def _report_places(output_dir: str, junit: str) -> "tuple[Path | None, Path | None]":
    """Made or checked before anything is started."""
    from pathlib import Path

    if output_dir:
        try:
            os.makedirs(output_dir, exist_ok=True)
        except OSError as error:
            raise CommandError(f"--output-dir {output_dir}: {error.strerror}") from None
    if junit and not os.path.isdir(os.path.dirname(junit) or "."):
        raise CommandError(f"--junit {junit}: there is no such folder", "make it first")
    return Path(output_dir) if output_dir else None, Path(junit) if junit else None


def _print_documents(documents: list[dict[str, Any]], output: str | None) -> int:
    from onejob.cli.run.manifests import yaml_of

    if output == "json":
        import msgspec

        for document in documents:
            print(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
    elif output == "yaml":
        print("---\n".join(yaml_of(document) for document in documents), end="")
    else:
        for document in documents:
            kind, name = document["kind"].lower(), document["metadata"].get("name", "")
            print(f"{kind}/{name} would be created (dry run)")
    return 0
