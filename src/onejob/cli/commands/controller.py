"""`onejob controller`: onejob's controllers on an existing Kubernetes cluster."""

import sys
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import parse_listen, require_manager_name
from onejob.cli.server_log import log_options, log_to_stderr

if TYPE_CHECKING:
    from onejob.client.kubeconfig import Connection
    from onejob.cluster.manager import Settings

_EPILOG = """\b
Examples:
  onejob controller   # by $KUBECONFIG or ~/.kube/config
  onejob controller --context prod --namespace team-a --namespace team-b
  onejob controller --leader-elect --metrics-listen 0.0.0.0:8080

A Job asks for it by `spec.managedBy: onejob.dev/job-controller`. All other Jobs are left alone.
`onejob manifests` prints what installs it in a cluster."""


@click.command(epilog=_EPILOG, short_help="Run Jobs of a Kubernetes cluster")
@click.option(
    "--kubeconfig",
    default="",
    metavar="FILE",
    help="The API server to use, and the user to be there.",
)
@click.option(
    "--context",
    default="",
    metavar="NAME",
    help="The context of the kubeconfig. [default: the current one]",
)
@click.option(
    "--manager-name",
    default="onejob.dev/job-controller",
    show_default=True,
    metavar="NAME",
    help="What Jobs say in spec.managedBy to be run here.",
)
@click.option(
    "-n",
    "--namespace",
    multiple=True,
    metavar="NAME",
    help="Run Jobs of this namespace only; may be repeated. [default: all]",
)
@click.option("--leader-elect", is_flag=True, help="Run several; one of them works at a time.")
@click.option(
    "--leader-elect-namespace",
    default="",
    metavar="NAME",
    help="Where the lease is, and dry runs are made. [default: that of the context or the Pod]",
)
@click.option(
    "--leader-elect-lease-duration",
    type=float,
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="How long others wait for a leader that says nothing.",
)
@click.option(
    "--leader-elect-renew-deadline",
    type=float,
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="How long a leader goes on that cannot renew its lease.",
)
@click.option(
    "--leader-elect-retry-period",
    type=float,
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait between two attempts.",
)
@click.option(
    "--qps",
    type=click.FloatRange(min=0),
    default=50,
    show_default=True,
    help="Requests a second; 0: no limit.",
)
@click.option(
    "--burst",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many requests may be sent at once.",
)
@click.option(
    "--metrics-listen",
    default="",
    metavar="HOST:PORT",
    help="Answer /healthz, /readyz and /metrics there, over plain HTTP.",
)
@click.option(
    "--mirror",
    is_flag=True,
    help="Also run Jobs that are managed by onejob.dev/mirror, on the clusters that they name.",
)
@log_options
def command(
    kubeconfig: str,
    context: str,
    manager_name: str,
    namespace: tuple[str, ...],
    leader_elect: bool,
    leader_elect_namespace: str,
    leader_elect_lease_duration: float,
    leader_elect_renew_deadline: float,
    leader_elect_retry_period: float,
    qps: float,
    burst: int,
    metrics_listen: str,
    mirror: bool,
    verbose: int,
    log_format: str,
) -> int:
    """Run the Jobs of a Kubernetes cluster whose managedBy names onejob.

    It does what kube-controller-manager does for other Jobs, by the same rules, and leaves those
    alone. Pods are run by the cluster's own nodes.
    """
    from onejob.client.kubeconfig import InvalidKubeconfig, find_connection
    from onejob.clock import SystemClock
    from onejob.cluster.manager import Settings
    from onejob.planning.leadership import Timing

    timing = Timing(
        leader_elect_lease_duration, leader_elect_renew_deadline, leader_elect_retry_period
    )
    if timing.problem:
        raise CommandError(timing.problem, "see the --leader-elect options")
    require_manager_name(manager_name)
    listen = parse_listen(metrics_listen) if metrics_listen else None
    try:
        connection = find_connection(SystemClock(), kubeconfig=kubeconfig, context=context)
    except InvalidKubeconfig as error:
        raise CommandError(str(error), "name another with --kubeconfig") from None
    settings = Settings(
        manager=manager_name,
        namespaces=tuple(dict.fromkeys(namespace)),
        leader_elect=leader_elect,
        timing=timing,
        own_namespace=leader_elect_namespace,
        qps=qps,
        burst=burst,
        mirror=mirror,
    )
    log_to_stderr(verbose, log_format)
    return _run(settings, connection, listen)


def _run(settings: "Settings", connection: "Connection", listen: tuple[str, int] | None) -> int:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_control(settings, connection, listen))


async def _control(
    settings: "Settings", connection: "Connection", listen: tuple[str, int] | None
) -> int:
    import asyncio
    import signal

    from onejob.cluster.manager import Manager
    from onejob.cluster.preflight import PreflightError
    from onejob.cluster.probes import ProbeServer
    from onejob.worker_threads import prepare_threads

    await prepare_threads()

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    manager = Manager(settings, connection)
    checking = asyncio.create_task(manager.check())
    try:
        version = await _unless_stopped(checking, stopping)
    except PreflightError as error:
        raise CommandError(str(error), error.next_step) from None
    if version is None:
        return 0
    probes = ProbeServer(
        {
            "/healthz": manager.health,
            "/livez": manager.health,
            "/readyz": manager.readiness,
            "/metrics": lambda: (200, manager.metrics.exposition()),
        }
    )
    if listen is not None:
        try:
            listening = await probes.start(*listen)
        except OSError as error:
            raise CommandError(
                f"cannot listen on {listen[0]}:{listen[1]}: {error.strerror or error}",
                "choose another with --metrics-listen",
            ) from None
        print(f"metrics at http://{listen[0]}:{listening}/metrics", flush=True)
    print(
        f"onejob runs Jobs that are managed by {settings.manager} on {connection.server} "
        f"({version})",
        flush=True,
    )
    try:
        await manager.run(stopping)
    except Exception as error:
        print(f"error: {_first_of(error)!r}; start again", file=sys.stderr)
        return EXIT_FAILED
    finally:
        await probes.stop()
    return 0


async def _unless_stopped(task: Any, stopping: Any) -> str | None:
    """Return the result of a task, or None if a stop is requested before it is done."""
    import asyncio

    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None
    result: str = task.result()
    return result


def _first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
