"""`onejob run`: a whole control plane in this process, for the duration of its Jobs."""

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

    from onejob.cli.kept_runs import RunClaim
    from onejob.cli.manifests.loading import Manifest
    from onejob.cli.run.page import PageOptions
    from onejob.gates import FeatureGates
    from onejob.node.images import Images
    from onejob.node.options import NodeOptions
    from onejob.planning.job.parameter_rows import Row
    from onejob.planning.queue.limits import Limits

_EPILOG = """\b
Examples:
  onejob run job.yaml                           # files, folders and -
  onejob run https://example.com/job.yaml       # from the web
  onejob run -k overlays/test                   # what kustomize makes of it
  onejob run -n batch ci/                       # in a namespace
  onejob run -- ./train.py --epochs 3           # a Job without YAML
  onejob run --completions 8 --indexed -- sh -c 'echo $JOB_COMPLETION_INDEX'
  onejob run --params grid.csv -- ./train.py --lr={lr}   # a Pod a row
  onejob run --param lr=0.1,0.01 --param seed=1,2,3 -- ./train.py {lr} {seed}
  onejob run --resume train                     # what did not succeed
  onejob run --again train --set lr=0.2         # all of it
  onejob run --dry-run=client -o yaml -- date   # the YAML of such a Job
  onejob run -o json job.yaml | jq .outcome     # for scripts
  onejob run -o raw -- ./report.py > report.csv   # byte for byte
  onejob run --queue '*=2' jobs/                # two Jobs at a time, in order
  onejob run --junit report.xml --output-dir logs/ ci/
  onejob run --ui train.yaml                    # watch it in a browser

A run ends at once, with the reason, when its Pods can never start: a missing ConfigMap, Secret
or key, a request larger than this machine, an image that cannot be had. --keep-waiting waits.

Exit code: 0 every Job is Complete, 1 one Failed, could not start or took longer than --timeout,
2 bad input (nothing was started), 130 interrupted (its Pods were stopped); with --exit-code
that of the only container."""


class _Run(CommandAfterDashes):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            # The option may belong to a program that was given without `--` before it.
            if "--" not in words and not words[0].startswith("-"):
                _refuse_programs(words)
            raise


@click.command(cls=_Run, epilog=_EPILOG, short_help="Run Jobs to the end")
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
    "-n",
    "--namespace",
    default="default",
    metavar="NAME",
    help="The namespace of manifests that name none.",
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
@click.option(
    "--deadline",
    type=duration,
    metavar="DURATION",
    help="How long the Job may take, e.g. 10m, with -- COMMAND.",
)
@click.option(
    "-e",
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="A variable of the container, with -- COMMAND.",
)
@click.option(
    "--clean-env",
    is_flag=True,
    help="Do not let the command inherit our environment, as processes do otherwise, with "
    "-- COMMAND.",
)
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
@click.option(
    "--again",
    default="",
    metavar="RUN",
    help="Run a kept run once more: as --resume, but all of it.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --again or --resume: a parameter, or a variable of containers, with another value.",
)
@click.option(
    "--timeout", type=duration, metavar="DURATION", help="How long the whole run may take."
)
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
@click.option(
    "--ui",
    is_flag=True,
    help="Show the run in a browser: the dashboard of onejob serve, on this machine only. On a "
    "terminal it stays until Ctrl-C.",
)
@click.option(
    "--ui-for",
    type=duration,
    metavar="DURATION",
    help="How long the dashboard stays after the last Job, e.g. 10m. Implies --ui.",
)
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
    kept = options["resume"] or options["again"]
    claim: RunClaim | None = None
    if kept:
        option = "--resume" if options["resume"] else "--again"
        if files or after_dashes is not None:
            raise CommandError(f"{option} takes no files and no command", "they are in the run")
        claim, manifests = _of_kept_run(kept, data_dir, options)
        if not manifests:
            return 0
    elif options["settings"]:
        raise CommandError("--set changes a kept run", "give it with --again or --resume")
    else:
        manifests = _manifests(files, after_dashes, options)
    now = SystemClock().now()
    images = None if dry_run else _stand_ins(node)
    plan = plan_run(manifests, namespace, gates, now, check_only=dry_run is not None, images=images)
    if dry_run:
        if output == "raw":
            raise CommandError("-o raw is what containers write", "leave it out with --dry-run")
        for notice in plan.notices:
            print(f"note: {notice}", file=sys.stderr)
        return _print_documents([item.document for item in plan.objects], output)
    node = _with_environment(node, claim, after_dashes, clean=options["clean_env"])
    require_runtime(node)
    _require_folder()
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
            page=_page(options, output),
            arguments=tuple(sys.argv[1:]),
            resumes=claim if options["resume"] else None,
        ),
    )


def _with_environment(
    node: "NodeOptions",
    claim: "RunClaim | None",
    command_line: tuple[str, ...] | None,
    *,
    clean: bool,
) -> "NodeOptions":
    """Return node options whose commands inherit our environment.

    The Pods of a resumed run get the variables of its first run instead.
    """
    from msgspec.structs import replace

    from onejob.cli.manifests.job_from_command import inherited

    if claim is not None:
        node = replace(node, passed_env=claim.passed_environment())
    if clean or node.runtime != "process":
        return node
    if claim is not None:
        return replace(node, caller_env=claim.environment())
    return node if command_line is None else replace(node, caller_env=inherited(os.environ))


def _require_folder() -> None:
    """Raise CommandError unless the working directory of the commands exists and is UTF-8."""
    try:
        os.getcwd().encode()
    except FileNotFoundError:
        raise CommandError("the folder that you are in is gone", "cd to another") from None
    except UnicodeEncodeError:
        name = repr(os.path.basename(os.getcwd()))
        raise CommandError(
            f"the name of this folder, {name}, is not in UTF-8", "cd to another"
        ) from None


def _stand_ins(node: "NodeOptions") -> "Images | None":
    if node.runtime != "process":
        return None
    from onejob.node.images import Images

    return Images(node.image_map)


def _refuse_programs(files: tuple[str, ...]) -> None:
    """Raise CommandError if a program was given as a file: `--` is missing before the command."""
    import shlex
    import shutil

    from onejob.diagnosis.pod_waits import interpreter_of

    if not files:
        return
    first = files[0]
    command_line = list(files)
    if os.path.isfile(first) and os.access(first, os.R_OK):
        interpreter = interpreter_of(first)
        with open(first, "rb") as file:
            program = bool(interpreter) or file.read(4).startswith((b"#!", b"\x7fELF"))
        problem = "is a program, not a manifest"
        if not os.access(first, os.X_OK):
            command_line.insert(0, interpreter or "sh")
        elif "/" not in first:
            command_line[0] = f"./{first}"
    else:
        program = not os.path.lexists(first) and shutil.which(first) is not None
        problem = "there is no such file"
    if program:
        next_step = f"to run it: onejob run -- {shlex.join(command_line)}"
        raise CommandError(f"{first}: {problem}", next_step)


def _manifests(
    files: tuple[str, ...], command_line: tuple[str, ...] | None, options: dict[str, Any]
) -> "list[Manifest]":
    from onejob.cli.manifests.loading import read_kustomized, read_manifests

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
        if options["clean_env"]:
            raise CommandError("--clean-env describes a command", "give one after --")
        _refuse_programs(files)
        return read_kustomized(folder) if folder else read_manifests(files)
    if files:
        raise CommandError("give files or a command, not both", "see onejob run --help")
    if not command_line:
        raise CommandError("there is no command after --")
    from onejob.cli.manifests.job_from_command import HOST_IMAGE, CommandJob, job_document
    from onejob.cli.manifests.loading import manifest_from_document

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
        from onejob.cli.manifests.params import add_parameters

        documents.insert(0, add_parameters(document, rows, command_line))
    return [manifest_from_document(made, number=number) for number, made in enumerate(documents, 1)]


def _of_kept_run(
    wanted: str, data_dir: str | None, options: dict[str, Any]
) -> "tuple[RunClaim, list[Manifest]]":
    from onejob.cli.kept_runs import claim_newest, claim_run, find_run
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.run.resuming import manifests_of_run
    from onejob.cli.sources.set_options import parse_settings

    if options["resume"] and options["again"]:
        raise CommandError("give --resume or --again, not both")
    settings = parse_settings(options["settings"])
    place = find_data_dir(data_dir)
    place.require_trusted()
    if options["again"]:
        claim = claim_run(find_run(place.runs, wanted)[0])
    else:
        claim = claim_newest(place.runs, wanted)
    manifests = manifests_of_run(claim, failed_only=not options["again"], settings=settings)
    if options["again"]:
        claim.release()
    if not manifests:
        print(f"run {claim.run.id}: everything has succeeded, nothing is left to do")
    return claim, manifests


def _rows(options: dict[str, Any]) -> "list[Row] | None":
    if not options["params"] and not options["param"]:
        return None
    if options["completions"] is not None:
        raise CommandError("--completions is the number of rows", "leave it out with --params")
    from onejob.cli.manifests.params import read_parameters

    return read_parameters(options["params"], options["param"])


def _parallelism(asked: int | None, rows: "list[Row] | None") -> int | None:
    """Return the parallelism; a parameter sweep defaults to the number of available CPUs."""
    if asked is not None or rows is None:
        return asked
    return min(len(rows), len(os.sched_getaffinity(0)))


def _page(options: dict[str, Any], output: str | None) -> "PageOptions | None":
    if not options["ui"] and options["ui_for"] is None:
        return None
    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.run.page import page_options

    if options["ui_for"] is not None and options["ui_for"] < 0:
        raise CommandError("--ui-for must not be negative")
    terminal = terminal_of(sys.stderr if output else sys.stdout)
    return page_options(options["ui_for"], os.environ, interactive=terminal.interactive)


def _report_places(output_dir: str, junit: str) -> "tuple[Path | None, Path | None]":
    """Create or check the output folder and the report path before anything is started."""
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
    from onejob.cli.yaml_text import yaml_of

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
