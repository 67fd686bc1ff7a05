"""`onejob run`: a whole control plane in this process, for the duration of its Jobs."""

import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar, Final

import click

from onejob.cli.completing import complete_file
from onejob.cli.display.durations import duration
from onejob.cli.errors import CommandError
from onejob.cli.options import (
    CommandAfterDashes,
    GroupedOptions,
    controller_options,
    data_dir_option,
    node_options,
    require_runtime,
)

if TYPE_CHECKING:
    from pathlib import Path

    from onejob.cli.kept_runs import RunClaim
    from onejob.cli.manifests.loading import Manifest
    from onejob.cli.run.background import Background
    from onejob.cli.run.page import PageOptions
    from onejob.gates import FeatureGates
    from onejob.node.images import Images
    from onejob.node.options import NodeOptions
    from onejob.planning.job.parameter_rows import Row
    from onejob.planning.queue.limits import Limits

_EPILOG = """\b
Examples:
  onejob run job.yaml                           # files, directories and -
  onejob run https://example.com/job.yaml       # from a URL
  onejob run -k overlays/test                   # with kustomize
  onejob run -n batch ci/                       # in a namespace
  onejob run load.yaml report.yaml --in-order   # one Job after the other
  onejob run flow.yaml                          # a Workflow: a graph of Jobs
  onejob run -- ./train.py --epochs 3           # a Job without YAML
  onejob run --completions 8 --indexed -- sh -c 'echo $JOB_COMPLETION_INDEX'
  onejob run --params grid.csv -- ./train.py --lr={lr}   # a Pod per row
  onejob run --param lr=0.1,0.01 --param seed=1,2,3 -- ./train.py {lr} {seed}
  onejob run --resume train                     # only what did not succeed
  onejob run --again train --set lr=0.2         # run all again
  onejob run --dry-run=client -o yaml -- date   # print the YAML
  onejob run -o json job.yaml | jq .outcome     # for scripts
  onejob run -o raw -- ./report.py > report.csv   # unchanged output
  onejob run --queue '*=2' jobs/                # at most two Jobs at a time
  onejob run --junit report.xml --output-dir logs/ ci/
  onejob run --ui train.yaml                    # with the dashboard
  onejob run --detach -- ./train.py             # in the background
  onejob run --on prod job.yaml                 # on a Kubernetes cluster

A run fails immediately if its Pods can never start: a ConfigMap, Secret or key is missing, a
request exceeds this machine, or an image cannot be pulled. With --keep-waiting it waits instead.

Exit code: 0 if all Jobs are Complete, 1 if one failed or could not start, 2 for invalid input (no
Job was started), 124 if --timeout was exceeded, 130 if interrupted (its Pods were stopped); with
--exit-code that of the only container."""


class _Run(CommandAfterDashes, GroupedOptions):
    sections: ClassVar = {
        "Manifests": ("filename", "kustomize", "namespace", "in_order", "dry_run"),
        "Job of a command": (
            "name", "image", "completions", "parallelism", "indexed", "retries", "deadline", "env",
            "clean_env",
        ),
        "Parameter sweeps": ("params", "param"),
        "Kept runs": ("resume", "again", "settings", "from_task", "ephemeral"),
        "Kubernetes clusters": ("on", "kubeconfig", "ttl"),
        "Control of the run": ("detach", "timeout", "keep_waiting", "queue", "exit_code"),
        "Output and reports": ("output", "output_dir", "junit", "ui", "ui_for", "plain", "quiet"),
        "Containers and machine": (
            "runtime", "pass_env", "image_map", "capacity", "engine", "engine_option", "host_fs",
            "writable", "enforce_limits", "pid_namespace",
        ),
        "Slurm": ("min_nodes", "max_nodes", "walltime", "slurm"),
    }  # fmt: skip

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption:
            # The option may belong to a program that was given without `--` before it.
            if "--" not in words and not words[0].startswith("-"):
                _refuse_programs(words)
            raise


@click.command(cls=_Run, epilog=_EPILOG, short_help="Run Jobs to completion")
@click.argument(
    "files", nargs=-1, metavar="[FILE]... [-- COMMAND [ARG]...]", shell_complete=complete_file
)
@click.option(
    "-f",
    "--filename",
    multiple=True,
    metavar="FILE",
    shell_complete=complete_file,
    help="Same as FILE, as in kubectl.",
)
@click.option(
    "-k",
    "--kustomize",
    default="",
    metavar="DIR",
    help="Build the manifests with kustomize or kubectl kustomize.",
)
@click.option(
    "-n",
    "--namespace",
    default="default",
    metavar="NAME",
    help="Namespace of manifests that specify none.",
)
@click.option("--name", default="", metavar="NAME", help="Name of the Job, with -- COMMAND.")
@click.option(
    "--image", default="", metavar="IMAGE", help="Image of the container, with -- COMMAND."
)
@click.option(
    "--completions",
    type=click.IntRange(0),
    metavar="N",
    help="Number of successful Pods, with -- COMMAND.",
)
@click.option(
    "--parallelism",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of running Pods, with -- COMMAND or a kept run.",
)
@click.option(
    "--indexed", is_flag=True, help="Run an Indexed Job: each Pod gets JOB_COMPLETION_INDEX."
)
@click.option(
    "--retries",
    type=click.IntRange(0),
    metavar="N",
    help="Number of retries after failures, with -- COMMAND or a kept run; with --indexed, of "
    "each index. "
    "[default: 0]",
)
@click.option(
    "--deadline",
    type=duration,
    metavar="DURATION",
    help="Maximum duration of the Job, e.g. 10m, with -- COMMAND or a kept run.",
)
@click.option(
    "-e",
    "--env",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Environment variable of the container, with -- COMMAND.",
)
@click.option(
    "--clean-env",
    is_flag=True,
    help="Do not pass the environment of onejob to the command, with -- COMMAND.",
)
@click.option(
    "--params",
    default="",
    metavar="FILE",
    shell_complete=complete_file,
    help="Run one Pod per row of a .csv, .jsonl or .txt file; the command refers to values as "
    "{column}.",
)
@click.option(
    "--param",
    multiple=True,
    metavar="NAME=V1,V2,...",
    help="Run one Pod per value; several options run one Pod per combination.",
)
@click.option(
    "--resume",
    default="",
    metavar="RUN",
    help="Continue a kept run that did not succeed: its ID or the name of its Job.",
)
@click.option(
    "--again",
    default="",
    metavar="RUN",
    help="Run all of a kept run again: its ID or the name of its Job.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="With --again or --resume: change a parameter or environment variable.",
)
@click.option(
    "--from",
    "from_task",
    default="",
    metavar="TASK",
    help="With --again: run only this task of the workflow, and those that depend on it.",
)
@click.option(
    "--in-order",
    is_flag=True,
    help="Start each Job after the one before has completed; the first failure ends the run.",
)
@click.option(
    "--detach",
    is_flag=True,
    help="Run in the background; onejob attach follows it, onejob stop stops it.",
)
@click.option(
    "--timeout", type=duration, metavar="DURATION", help="Maximum duration of the whole run."
)
@click.option(
    "--keep-waiting",
    is_flag=True,
    help="Keep waiting for missing ConfigMaps, Secrets, capacity or images instead of failing.",
)
@click.option("--ephemeral", is_flag=True, help="Do not keep the run for later commands.")
@click.option("--exit-code", is_flag=True, help="Exit with the exit code of the only container.")
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml", "raw"]),
    help="Print the result in this format; raw prints container output unchanged. Messages go to "
    "stderr.",
)
@click.option(
    "--output-dir",
    default="",
    metavar="DIR",
    help="Write the logs of each Pod to DIR/POD.log.",
)
@click.option("--junit", default="", metavar="FILE", help="Write a JUnit report to FILE.")
@click.option(
    "--ui",
    is_flag=True,
    help="Serve the dashboard of this run on localhost and open a browser. On a terminal it is "
    "served until Ctrl-C.",
)
@click.option(
    "--ui-for",
    type=duration,
    metavar="DURATION",
    help="How long to serve the dashboard after the last Job, e.g. 10m. Implies --ui.",
)
@click.option(
    "--on",
    default="",
    metavar="CONTEXT",
    help="Run the Jobs on the cluster of this kubeconfig context or mirror target.",
)
@click.option(
    "--kubeconfig",
    default="",
    metavar="FILE[:FILE...]",
    help="With --on: kubeconfigs that define the context. [default: ~/.kube/config]",
)
@click.option(
    "--ttl",
    type=duration,
    metavar="DURATION",
    help="With --on: delete the objects of the run this long after its Jobs. [default: keep them]",
)
@click.option("--watch", is_flag=True, help="Run again when a file changes, until Ctrl-C.")
@click.option("--plain", is_flag=True, help="Print lines instead of a live display.")
@click.option("-q", "--quiet", is_flag=True, help="Print only failures.")
@click.option(
    "--dry-run",
    type=click.Choice(["client"]),
    help="Check all files and print the objects (-o yaml or json) without starting anything.",
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
    node: "NodeOptions",
    gates: "FeatureGates",
    default_failed_pods_limit: int | None,
    queue_limits: "Limits | None",
    data_dir: str | None,
    **options: Any,
) -> int:
    """Run Jobs to completion on this machine and show their logs and progress.

    FILE contains Jobs or Workflows, and the ConfigMaps, Secrets and Namespaces that they use. No
    server is required, and runs are independent of each other. Each run is kept for 7 days: onejob
    get, logs, describe and why find it by the name of its Job or Workflow.
    """
    from onejob.cli.run.plan import plan_run
    from onejob.clock import SystemClock

    dry_run: str | None = options["dry_run"]
    files += filename
    if options.pop("watch"):
        from onejob.cli.run.watching import run_on_changes

        return run_on_changes(sys.argv[1:], files, after_dashes or ())
    if timeout is not None and timeout <= 0:
        raise CommandError("--timeout must be positive")
    if options["on"] == "slurm":
        from msgspec.structs import replace

        node = replace(node, runtime="slurm")
    elif options["on"]:
        return _run_elsewhere(
            files,
            after_dashes,
            options,
            namespace=namespace,
            timeout=timeout,
            output=output,
            node=node,
            gates=gates,
            data_dir=data_dir,
        )
    for name in ("kubeconfig", "ttl"):
        if options[name] not in ("", None):
            raise CommandError(f"--{name} requires --on", "see onejob run --help")
    kept = options["resume"] or options["again"]
    claim: RunClaim | None = None
    if kept:
        option = "--resume" if options["resume"] else "--again"
        if files or after_dashes is not None:
            raise CommandError(
                f"{option} accepts no files and no command", "the kept run contains them"
            )
        _refuse_changes(option)
        claim, manifests = _claim_kept_run(kept, data_dir, options)
        if not manifests:
            return 0
    elif options["settings"]:
        raise CommandError("--set requires --again or --resume", "see onejob run --help")
    elif options["from_task"]:
        raise CommandError("--from requires --again", "onejob run --again RUN --from TASK")
    else:
        manifests = _manifests(files, after_dashes, options)
    if options["detach"]:
        _check_detached(output, dry_run, options)
    now = SystemClock().now()
    images = None if dry_run else _images_for_process(node)
    plan = plan_run(manifests, namespace, gates, now, check_only=dry_run is not None, images=images)
    if options["in_order"]:
        from onejob.cli.workflows.in_order import one_after_another

        manifests = one_after_another(manifests, namespace)
        plan = plan_run(
            manifests, namespace, gates, now, check_only=dry_run is not None, images=images
        )
    if dry_run:
        if output == "raw":
            raise CommandError("-o raw prints container output", "do not combine it with --dry-run")
        for notice in plan.notices:
            print(f"note: {notice}", file=sys.stderr)
        return _print_documents([item.document for item in plan.objects], output)
    node = _with_environment(node, claim, after_dashes, clean=options["clean_env"])
    require_runtime(node)
    _require_folder()
    output_dir, junit = _report_places(options["output_dir"], options["junit"])
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.run.session import SessionOptions, run_session

    background: Background | None = None
    if options["detach"]:
        from onejob.cli.run.background import detach

        forked = detach()
        if isinstance(forked, int):
            return forked
        background = forked
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
            page=_page_options(options, output),
            arguments=tuple(sys.argv[1:]),
            resumes=claim if options["resume"] else None,
            background=background,
        ),
    )


#: Options of runs on this machine, which no cluster could honour.
_ONLY_HERE: Final = (
    *(
        "resume",
        "again",
        "settings",
        "from_task",
        "in_order",
        "ephemeral",
        "dry_run",
        "ui",
        "ui_for",
        "queue",
    ),
    *("runtime", "pass_env", "image_map", "capacity", "engine", "engine_option", "host_fs"),
    *("writable", "enforce_limits", "pid_namespace", "clean_env"),
    *("min_nodes", "max_nodes", "walltime", "slurm"),
)


def _run_elsewhere(
    files: tuple[str, ...],
    after_dashes: tuple[str, ...] | None,
    options: dict[str, Any],
    *,
    namespace: str,
    timeout: float | None,
    output: str | None,
    node: "NodeOptions",
    gates: "FeatureGates",
    data_dir: str | None,
) -> int:
    """Run the Jobs on the cluster that --on names; return the exit code."""
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.remote.contexts import find_place
    from onejob.cli.remote.session import RemoteOptions, run_remote
    from onejob.cli.run.session import SessionOptions

    given = click.core.ParameterSource.COMMANDLINE
    context = click.get_current_context()
    for name in _ONLY_HERE:
        if context.get_parameter_source(name) is given:
            option = {"settings": "set", "from_task": "from"}.get(name, name.replace("_", "-"))
            raise CommandError(
                f"--{option} cannot be combined with --on: it is for runs on this machine",
                "remove it",
            )
    if options["detach"] and output:
        raise CommandError("--detach cannot be combined with --output", "use onejob attach")
    place = find_data_dir(data_dir)
    place.require_trusted()
    # Before the manifests: a mistyped context is the more dangerous mistake.
    where = find_place(options["on"], options["kubeconfig"], place)
    manifests = _manifests(files, after_dashes, options)
    output_dir, junit = _report_places(options["output_dir"], options["junit"])
    ttl = options["ttl"]
    session = SessionOptions(
        data_dir=place,
        node=node,
        gates=gates,
        timeout_seconds=timeout,
        keep_waiting=options["keep_waiting"],
        output=output,
        output_dir=output_dir,
        junit=junit,
        plain=options["plain"],
        quiet=options["quiet"],
        container_exit_code=options["exit_code"],
        arguments=tuple(sys.argv[1:]),
    )
    return run_remote(
        manifests,
        namespace if context.get_parameter_source("namespace") is given else "",
        gates,
        RemoteOptions(
            where,
            place,
            session,
            ttl_seconds=None if ttl is None else max(0, round(ttl)),
            detach=options["detach"],
        ),
    )


#: Options that describe a new Job, with what to use for a kept run instead.
_OF_NEW_JOBS: Final = {
    "name": "",
    "namespace": "",
    "in_order": "",
    "kustomize": "",
    "image": "",
    "completions": "",
    "indexed": "",
    "env": "use --set NAME=VALUE",
    "params": "use --set NAME=VALUE",
    "param": "use --set NAME=VALUE",
}


def _refuse_changes(option: str) -> None:
    """Raise CommandError for an option that describes a new Job: it would have no effect."""
    context = click.get_current_context()
    for name, instead in _OF_NEW_JOBS.items():
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise CommandError(
                f"--{name.replace('_', '-')} cannot be combined with {option}: the kept run "
                "determines it",
                instead or "remove it, or start a new run",
            )


def _check_detached(output: str | None, dry_run: str | None, options: dict[str, Any]) -> None:
    for name, given in (
        ("--output", output),
        ("--dry-run", dry_run),
        ("--ui", options["ui"] or options["ui_for"] is not None),
        ("--ephemeral", options["ephemeral"]),
    ):
        if given:
            raise CommandError(
                f"--detach cannot be combined with {name}", "a detached run is kept, with its logs"
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
        raise CommandError(
            "the current directory no longer exists", "change to another directory"
        ) from None
    except UnicodeEncodeError:
        name = repr(os.path.basename(os.getcwd()))
        raise CommandError(
            f"the name of the current directory, {name}, is not valid UTF-8",
            "change to another directory",
        ) from None


def _images_for_process(node: "NodeOptions") -> "Images | None":
    """Return the configured stand-ins for container images, for the process runtime only."""
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
    if len(files) == 1:
        _refuse_quoted_command(first)
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
        problem = "no such file"
    if program:
        next_step = f"to run it: onejob run -- {shlex.join(command_line)}"
        raise CommandError(f"{first}: {problem}", next_step)


def _refuse_quoted_command(word: str) -> None:
    """Raise CommandError if one word is a whole command line: it was quoted as in `ssh`."""
    import shlex
    import shutil

    program, *rest = word.split() or [""]
    if not rest or os.path.lexists(word) or shutil.which(program) is None:
        return
    # Quotes and operators are for a shell; otherwise the words are the command.
    simple = not set(word) & set("|&;<>()$`\\\"'*?[~\n")
    instead = word if simple else f"sh -c {shlex.quote(word)}"
    raise CommandError(
        f"{shlex.quote(word)} is one word, not a command line", f"onejob run -- {instead}"
    )


def _manifests(
    files: tuple[str, ...], command_line: tuple[str, ...] | None, options: dict[str, Any]
) -> "list[Manifest]":
    from onejob.cli.manifests.loading import read_kustomized, read_manifests

    folder = options["kustomize"]
    if folder and (files or command_line is not None):
        raise CommandError("-k accepts no other files and no command", "see onejob run --help")
    if command_line is None:
        if not files and not folder:
            raise CommandError("nothing to run", "specify a file, or -- and a command")
        for option in (
            "name", "image", "completions", "parallelism", "retries", "deadline", "env", "params",
            "param",
        ):  # fmt: skip
            if options[option] not in ("", None, ()):
                raise CommandError(f"--{option} requires a command", "specify it after --")
        if options["clean_env"]:
            raise CommandError("--clean-env requires a command", "specify it after --")
        _refuse_programs(files)
        return read_kustomized(folder) if folder else read_manifests(files)
    if files:
        raise CommandError("specify either files or a command", "see onejob run --help")
    if not command_line:
        raise CommandError("missing command after --")
    if len(command_line) == 1 and not options["image"]:
        _refuse_quoted_command(command_line[0])
    from onejob.cli.manifests.job_from_command import HOST_IMAGE, CommandJob, job_document
    from onejob.cli.manifests.loading import manifest_from_document

    deadline = options["deadline"]
    rows = _parameter_rows(options)
    document = job_document(
        CommandJob(
            command=command_line,
            # A printed manifest runs unchanged on a server, which has another working directory.
            working_dir=os.getcwd() if options["dry_run"] and not options["image"] else "",
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


def _claim_kept_run(
    wanted: str, data_dir: str | None, options: dict[str, Any]
) -> "tuple[RunClaim, list[Manifest]]":
    """Claim the kept run to resume; return the claim and the manifests to run."""
    from onejob.cli.kept_runs import claim_newest, claim_run, find_run
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.run.resuming import JobChanges, manifests_of_run
    from onejob.cli.sources.set_options import parse_settings

    if options["resume"] and options["again"]:
        raise CommandError("specify either --resume or --again")
    if options["from_task"] and not options["again"]:
        raise CommandError("--from requires --again", "onejob run --again RUN --from TASK")
    settings = parse_settings(options["settings"])
    place = find_data_dir(data_dir)
    place.require_trusted()
    if options["again"]:
        claim = claim_run(find_run(place.runs, wanted)[0])
    else:
        claim = claim_newest(place.runs, wanted)
    if claim.run.on is not None:
        claim.release()
        raise CommandError(
            f"run {claim.run.id} is on another cluster",
            f"onejob rerun run/{claim.run.id} repeats its Jobs there",
        )
    deadline = options["deadline"]
    changes = JobChanges(
        parallelism=options["parallelism"],
        retries=options["retries"],
        deadline_seconds=None if deadline is None else max(1, round(deadline)),
    )
    manifests = manifests_of_run(
        claim,
        failed_only=not options["again"],
        settings=settings,
        changes=changes,
        from_task=options["from_task"],
    )
    if options["again"]:
        claim.release()
    if not manifests:
        print(f"run {claim.run.id} has already succeeded")
    return claim, manifests


def _parameter_rows(options: dict[str, Any]) -> "list[Row] | None":
    if not options["params"] and not options["param"]:
        return None
    if options["completions"] is not None:
        raise CommandError(
            "--completions cannot be combined with --params", "the number of rows determines it"
        )
    from onejob.cli.manifests.params import read_parameters

    return read_parameters(options["params"], options["param"])


def _parallelism(asked: int | None, rows: "list[Row] | None") -> int | None:
    """Return the parallelism; a parameter sweep defaults to the number of available CPUs."""
    if asked is not None or rows is None:
        return asked
    return min(len(rows), len(os.sched_getaffinity(0)))


def _page_options(options: dict[str, Any], output: str | None) -> "PageOptions | None":
    """Return the options of `--ui`, or None."""
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
        raise CommandError(f"--junit {junit}: no such directory", "create it first")
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
