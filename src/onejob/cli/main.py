"""Entry point of `onejob`: a table of subcommands, each imported only when it is called.

All errors end here as one line on stderr and an exit code; a user never sees a traceback.
"""

import errno
import gc
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final, NoReturn

import click

from onejob.cli.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, CommandError
from onejob.planning.bad_input import BadInput

_OBJECTS_BETWEEN_COLLECTIONS: Final = 50_000

#: Name -> (module that defines `command`, one-line help).
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "run": ("onejob.cli.commands.run", "Run manifests or a command to completion on this machine"),
    "attach": ("onejob.cli.commands.attach", "Follow a run in the background"),
    "stop": ("onejob.cli.commands.stop", "Stop a run, or suspend a Job"),
    "serve": ("onejob.cli.commands.serve", "Serve the Kubernetes API and run Jobs and CronJobs"),
    "ui": ("onejob.cli.commands.ui", "Open the dashboard of a server in a browser"),
    "get": ("onejob.cli.commands.get", "List objects"),
    "describe": ("onejob.cli.commands.describe", "Show one object with its events"),
    "logs": ("onejob.cli.commands.logs", "Print the logs of containers"),
    "results": ("onejob.cli.commands.results", "Show the result of each index of a Job"),
    "report": ("onejob.cli.commands.report", "Write a report of a run or Job as one HTML file"),
    "cp": ("onejob.cli.commands.cp", "Copy the outputs of a Job"),
    "runs": ("onejob.cli.commands.runs", "List kept runs"),
    "wait": ("onejob.cli.commands.wait", "Wait for a Job to finish, or for a condition"),
    "why": ("onejob.cli.commands.why", "Explain the state of an object and its next step"),
    "graph": ("onejob.cli.commands.graph", "Draw the graph of a workflow"),
    "top": ("onejob.cli.commands.top", "Show the resource usage of node, Jobs and Pods, live"),
    "queue": ("onejob.cli.commands.queue", "Show queued Jobs and the reasons why they wait"),
    "validate": (
        "onejob.cli.commands.validate",
        "Check manifests without starting or sending anything",
    ),
    "init": ("onejob.cli.commands.init", "Write a starter manifest"),
    "schema": ("onejob.cli.commands.schema", "Print the JSON Schema of manifests, for editors"),
    "create": ("onejob.cli.commands.create", "Create objects from files, or a Job from a command"),
    "apply": ("onejob.cli.commands.apply", "Create or update objects to match files"),
    "delete": ("onejob.cli.commands.delete", "Delete objects"),
    "suspend": ("onejob.cli.commands.suspend", "Suspend a Job or CronJob"),
    "resume": ("onejob.cli.commands.resume", "Resume a suspended Job or CronJob"),
    "rerun": ("onejob.cli.commands.rerun", "Run a finished Job again, or only its failed indexes"),
    "cron": ("onejob.cli.commands.cron", "Show the times of a schedule, or run a CronJob now"),
    "controller": (
        "onejob.cli.commands.controller",
        "Manage the Jobs of a Kubernetes cluster that select onejob",
    ),
    "manifests": (
        "onejob.cli.commands.manifests",
        "Print the manifests that install the controller in a cluster",
    ),
    "mirror": ("onejob.cli.commands.mirror", "Manage remote clusters for mirrored Jobs"),
    "notify": ("onejob.cli.commands.notify", "List and test notification targets"),
    "user": ("onejob.cli.commands.user", "Add, list and revoke users of a server"),
    "rotate": ("onejob.cli.commands.rotate", "Replace a key, token or certificate of the server"),
    "backup": ("onejob.cli.commands.backup", "Back up the state of a server to a file"),
    "restore": ("onejob.cli.commands.restore", "Restore a server from a backup"),
    "doctor": ("onejob.cli.commands.doctor", "Check and repair the state of a server"),
    "mcp": ("onejob.cli.commands.mcp", "Serve tools for agents over the Model Context Protocol"),
    "envtest-assets": (
        "onejob.cli.commands.envtest_assets",
        "Install onejob as the test binaries of envtest",
    ),
    "bench": ("onejob.cli.commands.bench", "Run benchmarks, compared with peers and limits"),
    "completion": ("onejob.cli.commands.completion", "Print a completion script for your shell"),
    "version": ("onejob.cli.commands.version", "Print the versions of onejob and its server"),
    "help": ("onejob.cli.commands.help", "Show help for onejob or one of its commands"),
}

#: Sections of `onejob --help`. A command in none of them is listed last.
_SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Run": ("run", "attach", "stop", "rerun", "create", "apply", "validate"),
    "Inspect": (
        "get",
        "describe",
        "logs",
        "results",
        "report",
        "why",
        "graph",
        "top",
        "queue",
        "runs",
        "wait",
    ),
    "Change": ("suspend", "resume", "delete", "cron"),
    "Serve": ("serve", "ui", "controller", "manifests", "mirror", "notify"),
    "Administer": ("user", "rotate", "backup", "restore", "doctor"),
    "Develop": (
        "init",
        "schema",
        "mcp",
        "envtest-assets",
        "bench",
        "completion",
        "version",
        "help",
    ),
}

#: Commands exempt from escaping of control characters: they use colours or pass container output
#: on, and escape other untrusted text themselves.
_RAW_OUTPUT: Final = frozenset({"run", "attach", "logs", "bench", "serve", "top", "mcp"})

_EPILOG: Final = """\b
Examples:
  onejob run job.yaml           # run a Job to completion, without a server
  onejob run -- make -j8 test   # the same without YAML
  onejob serve                  # Kubernetes API for kubectl and other clients
  onejob why job/pi             # explain the state of a Job"""


class LazyGroup(click.Group):
    """Command group with lazy imports. Its help comes from `COMMANDS` and imports no command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = import_module(module).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _RAW_OUTPUT:
            from onejob.cli.display.terminal import only_visible_output

            ctx.with_resource(only_visible_output())
        if name not in COMMANDS and not name.startswith("-"):
            from onejob.cli.command_suggestions import no_such_command

            raise no_such_command(name, name, COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        grouped = {name for names in _SECTIONS.values() for name in names}
        others = tuple(name for name in COMMANDS if name not in grouped)
        for title, names in (*_SECTIONS.items(), *([("Other", others)] if others else ())):
            with formatter.section(title):
                formatter.write_dl([(f"{name:<14}", COMMANDS[name][1]) for name in names])


def _print_version(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from onejob import __version__

        click.echo(f"onejob v{__version__}")
        context.exit()


@click.group(
    cls=LazyGroup,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Print the version of onejob and exit.",
)  # fmt: skip
def cli() -> None:
    """Kubernetes Jobs without the cluster."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit the process without interpreter shutdown.

    Everything that must be closed is closed already; shutdown would take longer than many commands,
    and a hanging thread must not delay the exit.
    """
    # Imported objects live until exit. Default garbage collection would traverse them a hundred
    # times, which takes a sixteenth of a short run; servers set their own thresholds later
    # (`own_process.settle`).
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS, 10, 10)
    _prepare_streams()
    exit_code = run_command(arguments)
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        exit_code = exit_code or EXIT_FAILED
    os._exit(exit_code)


def _prepare_streams() -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            # Closed by the caller (`>&-`). Left closed, the first file that we open would get this
            # descriptor, and output of a library or a child would be written into that file.
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
        elif number and stream.encoding != "utf-8":
            # A character that the terminal cannot encode (a progress bar has some) must not end a
            # run.
            stream.reconfigure(errors="backslashreplace")


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code."""
    if not sys.platform.startswith("linux"):
        return _print_error(
            CommandError("onejob supports only Linux", "use a Linux machine or container")
        )
    try:
        result = cli.main(
            args=None if arguments is None else list(arguments),
            prog_name="onejob",
            standalone_mode=False,
        )
        # Flushed here, where a closed pipe can still be distinguished from a crash at exit.
        sys.stdout.flush()
    except BadInput as error:
        return _print_error(error)
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        # `onejob` alone, or a bare command group: print its help without an error.
        print(error.format_message())
        return 0
    except click.ClickException as error:
        context = error.ctx if isinstance(error, click.UsageError) else None
        command = context.command_path if context else _command_named(arguments)
        message = _one_line(error.format_message()).removesuffix(".")
        return _print_error(CommandError(message, f"see {command} --help"))
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except SystemExit as end:
        # Raised after a completion (code 0), and by click for a pipe whose reader left: `... |
        # head`.
        return 0 if end.code == 0 else _report_closed_pipe()
    except Exception as error:
        return _report_unexpected(error)
    return result if isinstance(result, int) else 0


def _command_named(arguments: Sequence[str] | None) -> str:
    """Return the command for errors that click raises without a context (a missing value)."""
    words = sys.argv[1:] if arguments is None else arguments
    return f"onejob {words[0]}" if words and words[0] in COMMANDS else "onejob"


def _report_unexpected(error: Exception) -> int:
    """Print an error that no command handled; return the exit code."""
    from onejob.wire.errors import ApiError

    if isinstance(error, ApiError):
        return _print_error(CommandError(error.message, exit_code=EXIT_FAILED))
    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return _report_closed_pipe()
    if isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        try:
            return _print_error(CommandError(f"{place}{error.strerror}"))
        except OSError:
            # A closed terminal fails with the same error as a broken disk.
            return _report_closed_pipe()
    if isinstance(error, UnicodeEncodeError) and error.encoding == "utf-8":
        # Only command-line words can contain invalid UTF-8: all other input is decoded when it is
        # read.
        return _print_error(
            CommandError(
                f"{error.object!r} is not valid UTF-8", "objects can contain only UTF-8 text"
            )
        )
    if os.environ.get("ONEJOB_DEBUG"):
        raise error
    return _print_error(
        CommandError(
            f"internal error: {_one_line(f'{type(error).__name__}: {error}')}",
            "set ONEJOB_DEBUG=1 to see the traceback, and please report it",
            exit_code=EXIT_FAILED,
        )
    )


def _report_closed_pipe() -> int:
    """Discard further output to a closed stdout; return the exit code."""
    from onejob.cli.display.terminal import silence_output

    silence_output()
    return EXIT_FAILED


def _print_error(error: BadInput) -> int:
    """Print an error to stderr; return its exit code."""
    from onejob.cli.display.terminal import visible

    for line in error.lines:
        print(f"error: {visible(line)}", file=sys.stderr)
    return error.exit_code if isinstance(error, CommandError) else EXIT_USAGE


def _one_line(text: str) -> str:
    return " ".join(text.split())
