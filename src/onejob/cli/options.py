"""Command-line options shared by several commands."""

import fnmatch
import functools
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, get_args

import click

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.node.options import (
    EnforcedLimits,
    LogRetention,
    NodeOptions,
    OutputRetention,
    PidNamespace,
    SlurmOptions,
)
from onejob.node.runtimes import RUNTIMES, runtime_kind

if TYPE_CHECKING:
    from onejob.planning.queue.limits import Limits

    _Choice = click.Choice[str]
else:
    # click 8.1 has no generic types.
    _Choice = click.Choice

F = TypeVar("F", bound=Callable[..., Any])


class CommandAfterDashes(click.Command):
    """Command that receives the words after `--` as `after_dashes`: None if there is no `--`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        after: tuple[str, ...] | None = None
        if "--" in args:
            at = args.index("--")
            after, args = tuple(args[at + 1 :]), args[:at]
        rest = super().parse_args(ctx, args)
        ctx.params["after_dashes"] = after
        return rest


class GroupedOptions(click.Command):
    """Command whose `--help` lists its options in sections."""

    #: Title of a section -> names of its options' parameters, in order. Options in no section are
    #: listed last.
    sections: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = {
            param.name: row
            for param in self.get_params(ctx)
            if (row := param.get_help_record(ctx)) is not None
        }
        for title, names in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([rows.pop(name) for name in names])
        with formatter.section("Other options"):
            formatter.write_dl(list(rows.values()))


def data_dir_option(function: F) -> F:
    return click.option(
        "--data-dir",
        metavar="DIR",
        help="Directory for state. [default: $XDG_STATE_HOME/onejob or ~/.local/state/onejob]",
    )(function)


class _Runtime(_Choice):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value == "docker":
            raise CommandError("docker is an engine", "use --runtime podman --engine docker")
        return super().convert(value, param, ctx)


_NODE_OPTIONS = (
    click.option(
        "--runtime",
        type=_Runtime(list(RUNTIMES)),
        default="process",
        show_default=True,
        help="Run containers as host processes, with podman, on Slurm, or simulated (no "
        "programs run).",
    ),
    click.option(
        "--pass-env",
        multiple=True,
        metavar="NAME",
        help="Pass this environment variable to Pods; may be a pattern such as AWS_*.",
    ),
    click.option(
        "--image-map",
        multiple=True,
        metavar="IMAGE=COMMAND",
        help="Command for containers of this image that specify no command.",
    ),
    click.option(
        "--capacity",
        default="",
        metavar="NAME=AMOUNT,...",
        help="Capacity of this node, e.g. cpu=4,memory=8Gi,pods=20,example.com/gpu=2. [default: "
        "that of the machine]",
    ),
    click.option(
        "--engine",
        default="podman",
        envvar="ONEJOB_ENGINE",
        metavar="COMMAND",
        show_default=True,
        help="Container engine for --runtime podman: podman or docker.",
    ),
    click.option(
        "--engine-option",
        multiple=True,
        envvar="ONEJOB_ENGINE_OPTIONS",
        metavar="OPTION",
        help="Additional option of the engine's run command for every container, e.g. "
        "--network=host.",
    ),
    click.option(
        "--min-nodes",
        type=click.IntRange(0),
        default=0,
        show_default=True,
        metavar="N",
        help="With --runtime slurm: number of nodes to keep allocated.",
    ),
    click.option(
        "--max-nodes",
        type=click.IntRange(1),
        default=4,
        show_default=True,
        metavar="N",
        help="With --runtime slurm: maximum number of allocated nodes.",
    ),
    click.option(
        "--walltime",
        default="1h",
        show_default=True,
        metavar="DURATION",
        help="With --runtime slurm: time limit of an allocation.",
    ),
    click.option(
        "--slurm",
        multiple=True,
        metavar="NAME=VALUE",
        help="With --runtime slurm: partition, account, qos, constraint, gres, cpus, memory or "
        "pods of an allocation, idle=DURATION before it is returned, query=DURATION between "
        "queries, lost=DURATION of silence before it is lost, or an option of sbatch, e.g. "
        "--reservation=NAME.",
    ),
    click.option(
        "--host-fs",
        type=click.Choice(["rw", "ro"]),
        default="rw",
        help="Mount the host's files read-write or read-only in processes.",
    ),
    click.option(
        "--writable",
        multiple=True,
        metavar="PATH",
        help="With --host-fs ro: directory, file or device that stays writable.",
    ),
    click.option(
        "--enforce-limits",
        type=click.Choice(get_args(EnforcedLimits)),
        default="auto",
        show_default=True,
        help="How to enforce resources.limits of processes. auto: control groups, if available; "
        "rlimit: memory of each process separately.",
    ),
    click.option(
        "--keep-logs",
        default="168h",
        show_default=True,
        metavar="DURATION",
        help="How long to keep logs of deleted Pods, for onejob logs --deleted; 0 keeps none.",
    ),
    click.option(
        "--keep-logs-size",
        default="1Gi",
        show_default=True,
        metavar="AMOUNT",
        help="Maximum size of kept logs; the oldest are removed first.",
    ),
    click.option(
        "--keep-outputs",
        default="168h",
        show_default=True,
        metavar="DURATION",
        help="How long to keep outputs of deleted Pods ($ONEJOB_OUTPUT); 0 keeps none.",
    ),
    click.option(
        "--keep-outputs-size",
        default="10Gi",
        show_default=True,
        metavar="AMOUNT",
        help="Maximum size of outputs of deleted Pods; the oldest are removed first.",
    ),
    click.option(
        "--output-quota",
        default="1Gi",
        show_default=True,
        metavar="AMOUNT",
        help="Maximum size of the outputs of one Pod, which fails beyond it.",
    ),
    click.option(
        "--pid-namespace",
        type=click.Choice(get_args(PidNamespace)),
        default="auto",
        show_default=True,
        help="Run each container in its own PID namespace. auto: on for serve as root, if "
        "supported.",
    ),
)


def node_options(function: F) -> F:
    """Add the options of the node that runs Pods; the command receives `node: NodeOptions`."""

    @functools.wraps(function)
    def with_node(
        *arguments: Any,
        runtime: str,
        pass_env: tuple[str, ...],
        image_map: tuple[str, ...],
        capacity: str,
        engine: str,
        engine_option: tuple[str, ...],
        min_nodes: int,
        max_nodes: int,
        walltime: str,
        slurm: tuple[str, ...],
        host_fs: str,
        writable: tuple[str, ...],
        pid_namespace: PidNamespace,
        enforce_limits: EnforcedLimits,
        keep_logs: str,
        keep_logs_size: str,
        keep_outputs: str,
        keep_outputs_size: str,
        output_quota: str,
        **options: Any,
    ) -> Any:
        node = NodeOptions(
            runtime=runtime,
            pass_env=parse_pass_env(pass_env),
            image_map=parse_image_map(image_map),
            capacity=parse_capacity(capacity),
            engine=parse_engine(engine),
            engine_options=engine_option,
            slurm=parse_slurm(slurm, min_nodes, max_nodes, walltime),
            host_read_only=host_fs == "ro",
            writable=parse_writable(writable, host_fs, pid_namespace),
            pid_namespace=pid_namespace,
            enforce_limits=enforce_limits,
            kept_logs=parse_kept_logs(keep_logs, keep_logs_size),
            outputs=parse_outputs(keep_outputs, keep_outputs_size, output_quota),
        )
        return function(*arguments, node=node, **options)

    wrapped: F = _with_options(with_node, _NODE_OPTIONS)
    return wrapped


_CONTROLLER_OPTIONS = (
    click.option(
        "--default-failed-pods-limit",
        type=click.IntRange(0),
        metavar="N",
        help="Number of failed Pods to keep for Jobs that set no limit. [default: all]",
    ),
    click.option(
        "--queue",
        multiple=True,
        metavar="NAME=N",
        help="Maximum number of running Jobs with the label onejob.dev/queue=NAME; "
        "namespace/NAME=N limits a namespace, '*=N' all Jobs. [default: no limit]",
    ),
    click.option(
        "--feature-gates", default="", metavar="NAME=BOOL,...", help="Enable or disable features."
    ),
)


def controller_options(function: F) -> F:
    """Add the controllers' options.

    The command receives `gates: FeatureGates`, `queue_limits: Limits | None` and
    `default_failed_pods_limit`.
    """

    @functools.wraps(function)
    def with_gates(
        *arguments: Any, feature_gates: str, queue: tuple[str, ...], **options: Any
    ) -> Any:
        from onejob.gates import UnknownGate, note_without_effect, parse_gates

        try:
            gates = parse_gates(feature_gates)
        except UnknownGate as error:
            raise CommandError(str(error)) from None
        if note := note_without_effect(gates):
            click.echo(note, err=True)
        return function(*arguments, gates=gates, queue_limits=parse_queue(queue), **options)

    wrapped: F = _with_options(with_gates, _CONTROLLER_OPTIONS)
    return wrapped


def require_runtime(node: NodeOptions) -> None:
    """Raise CommandError if this machine lacks a requirement of the runtime."""
    if problem := runtime_kind(node.runtime).problem(node):
        raise CommandError(problem)


def _with_options(function: Any, options: Sequence[Callable[[Any], Any]]) -> Any:
    """Apply click options so that the help lists them in the given order."""
    for option in reversed(options):
        function = option(function)
    return function


def parse_writable(paths: Sequence[str], host_fs: str, pid_namespace: str) -> tuple[str, ...]:
    """Return the real paths of --writable, which are exceptions from `--host-fs ro`.

    Raises CommandError for a missing path or contradictory options.
    """
    if paths and host_fs != "ro":
        raise CommandError("--writable requires --host-fs ro", "use both")
    if host_fs == "ro" and pid_namespace == "off":
        raise CommandError("--host-fs ro requires PID namespaces", "remove --pid-namespace off")
    for path in paths:
        if not os.path.exists(path):
            raise CommandError(f"--writable {path}: no such file or directory")
    return tuple(os.path.realpath(path) for path in paths)


def parse_kept_logs(age: str, size: str) -> LogRetention | None:
    from onejob.cli.display.durations import duration
    from onejob.wire.quantity import InvalidQuantity, parse_quantity

    try:
        seconds = duration(age)
        size_bytes = parse_quantity(size).whole
    except click.BadParameter as error:
        raise CommandError(f"--keep-logs: {error.message}") from None
    except InvalidQuantity:
        raise CommandError(f"--keep-logs-size {size}: expected an amount such as 1Gi") from None
    return LogRetention(seconds, size_bytes) if seconds > 0 and size_bytes > 0 else None


def parse_outputs(age: str, size: str, quota: str) -> OutputRetention:
    from onejob.cli.display.durations import duration

    try:
        seconds = duration(age)
    except click.BadParameter as error:
        raise CommandError(f"--keep-outputs: {error.message}") from None
    kept = _amount("--keep-outputs-size", size)
    return OutputRetention(seconds, kept, _amount("--output-quota", quota))


def _amount(option: str, text: str) -> int:
    from onejob.wire.quantity import InvalidQuantity, parse_quantity

    try:
        return parse_quantity(text).whole
    except InvalidQuantity:
        raise CommandError(f"{option} {text}: expected an amount such as 1Gi") from None


def parse_pass_env(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of set variables that match; each item may be a glob pattern.

    Raises CommandError for a name that is not set.
    """
    found: list[str] = []
    for name in names:
        if "=" in name:
            raise CommandError(
                f"--pass-env {name}: expected a variable name",
                "set the value in the environment of onejob",
            )
        matching = sorted(fnmatch.filter(os.environ, name))
        if not matching and not _is_pattern(name):
            raise CommandError(
                f"--pass-env {name}: variable is not set", "set it, or remove the option"
            )
        found += matching
    return tuple(found)


def _is_pattern(name: str) -> bool:
    return any(letter in name for letter in "*?[")


def parse_engine(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise CommandError(f"--engine {text}: {error}") from None
    if not words:
        raise CommandError("--engine: expected a command")
    return words


_SLURM_NAMES = "partition, account, qos, constraint, gres, cpus, memory, pods, idle, query, lost"


def parse_slurm(
    items: Sequence[str], min_nodes: int, max_nodes: int, walltime: str
) -> SlurmOptions:
    """Return the options of the Slurm runtime. Raises CommandError."""
    from onejob.cli.display.durations import duration

    if min_nodes > max_nodes:
        raise CommandError(f"--min-nodes {min_nodes} is more than --max-nodes {max_nodes}")
    values: dict[str, Any] = {"min_nodes": min_nodes, "max_nodes": max_nodes}
    times = {"walltime_seconds": ("--walltime", walltime)}
    extra = []
    for item in items:
        name, equals, value = item.partition("=")
        if item.startswith("--"):
            extra.append(item)
        elif not equals or not value:
            raise CommandError(f"--slurm {item}: expected NAME=VALUE", "for example partition=long")
        elif name in ("partition", "account", "qos", "constraint", "gres"):
            values[name] = value
        elif name in ("cpus", "pods"):
            if not value.isdigit() or int(value) < 1:
                raise CommandError(f"--slurm {item}: expected a positive number")
            values[name] = int(value)
        elif name == "memory":
            values["memory_bytes"] = _amount("--slurm memory", value)
        elif name in ("idle", "query", "lost"):
            times[f"{name}_seconds"] = (f"--slurm {name}", value)
        else:
            raise CommandError(f"--slurm {item}: unknown name {name}", f"use one of {_SLURM_NAMES}")
    for field, (option, text) in times.items():
        try:
            values[field] = duration(text)
        except click.BadParameter as error:
            raise CommandError(f"{option}: {error.message}") from None
    return SlurmOptions(**values, sbatch_options=tuple(extra))


def parse_capacity(text: str) -> Mapping[str, str]:
    """Parse `cpu=4,memory=8Gi` into Kubernetes quantities by resource name. Raises CommandError."""
    from onejob.wire.quantity import InvalidQuantity, parse_quantity

    capacity: dict[str, str] = {}
    for item in filter(None, (piece.strip() for piece in text.split(","))):
        name, equals, amount = item.partition("=")
        try:
            parse_quantity(amount)
        except InvalidQuantity:
            equals = ""
        if not name or not equals:
            raise CommandError(f"--capacity {item}: expected NAME=AMOUNT", "for example memory=8Gi")
        capacity[name] = amount
    return capacity


def parse_queue(items: Sequence[str]) -> "Limits | None":
    """Parse --queue options; None without any, which leaves a server's limits unchanged."""
    if not items:
        return None
    from onejob.planning.queue.limits import BadLimits, parse_limits

    try:
        return parse_limits(items)
    except BadLimits as error:
        raise CommandError(f"--queue: {error}") from None


def parse_image_map(items: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    mapped: dict[str, tuple[str, ...]] = {}
    for item in items:
        image, equals, text = item.partition("=")
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise CommandError(f"--image-map {item}: {error}") from None
        if not image or not equals or not words:
            raise CommandError(f"--image-map {item}: expected IMAGE=COMMAND")
        mapped[image] = words
    return mapped


def client_options(function: F) -> F:
    """Add the options that select a server or kept runs; the command receives `where: Sources`."""

    @functools.wraps(function)
    def with_sources(
        *arguments: Any,
        namespace: str | None,
        kubeconfig: str | None,
        data_dir: str | None,
        **options: Any,
    ) -> Any:
        from onejob.cli.sources.selection import sources
        from onejob.wire.errors import NotFound

        only_runs = options.pop("runs", False)
        run = options.pop("run_id", "")
        where = sources(data_dir, kubeconfig, namespace, only_runs=only_runs, run=run)
        try:
            return function(*arguments, where=where, **options)
        except NotFound as missing:
            from onejob.cli.sources.absent import hint

            raise CommandError(
                missing.message, hint(where, missing), exit_code=EXIT_FAILED
            ) from None
        finally:
            where.close()

    wrapped: F = _with_options(
        with_sources,
        (
            data_dir_option,
            click.option(
                "--kubeconfig",
                metavar="FILE",
                help="Use the server of this kubeconfig instead of the one in the data directory.",
            ),
            click.option(
                "-n",
                "--namespace",
                metavar="NAME",
                help="Namespace. [default: the server's default; for kept runs, all]",
            ),
        ),
    )
    return wrapped


def runs_option(function: F) -> F:
    wrapped: F = _with_options(
        function,
        (
            click.option("--runs", is_flag=True, help="Read kept runs, even if there is a server."),
            click.option(
                "--run",
                "run_id",
                default="",
                metavar="RUN",
                help="Read only this kept run: its ID or the name of its Job.",
            ),
        ),
    )
    return wrapped


def output_option(*choices: str) -> Callable[[F], F]:
    return click.option("-o", "--output", type=click.Choice(choices), help="Output format.")


def parse_listen(text: str) -> tuple[str, int]:
    """Parse `HOST:PORT`, `[V6]:PORT` or `:PORT`. Raises CommandError."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise CommandError(f"--listen {text}: expected HOST:PORT", "for example 127.0.0.1:7443")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", int(port)


def require_manager_name(name: str) -> None:
    """Raise CommandError unless managedBy may have this value, and it is not the built-in one."""
    from onejob.planning.names import BUILT_IN_MANAGER

    domain, slash, path = name.partition("/")
    if not (domain and slash and path):
        raise CommandError(
            f"--manager-name {name!r} is not a valid value of managedBy",
            "use a domain and a path, for example example.com/job-controller",
        )
    if name == BUILT_IN_MANAGER:
        raise CommandError(
            f"{name} is the built-in controller of the cluster, which would run the same Jobs",
            "choose another --manager-name",
        )
