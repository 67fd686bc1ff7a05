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
  onejob controller   # uses $KUBECONFIG or ~/.kube/config
  onejob controller --context prod --namespace team-a --namespace team-b
  onejob controller --leader-elect --metrics-listen 0.0.0.0:8080

A Job selects it with `spec.managedBy: onejob.dev/job-controller`; other Jobs are not affected.
`onejob manifests` prints the manifests that install it in a cluster."""


@click.command(epilog=_EPILOG, short_help="Run Jobs of a Kubernetes cluster")
@click.option(
    "--kubeconfig",
    default="",
    metavar="FILE",
    help="Kubeconfig of the API server. [default: $KUBECONFIG, the Pod's service account or "
    "~/.kube/config]",
)
@click.option(
    "--context",
    default="",
    metavar="NAME",
    help="Context of the kubeconfig. [default: the current context]",
)
@click.option(
    "--manager-name",
    default="onejob.dev/job-controller",
    show_default=True,
    metavar="NAME",
    help="Run Jobs with this value of spec.managedBy.",
)
@click.option(
    "-n",
    "--namespace",
    multiple=True,
    metavar="NAME",
    help="Run only Jobs of this namespace; may be repeated. [default: all]",
)
@click.option("--leader-elect", is_flag=True, help="Elect a leader among several replicas.")
@click.option(
    "--leader-elect-namespace",
    default="",
    metavar="NAME",
    help="Namespace of the lease and of dry runs. [default: that of the context or Pod]",
)
@click.option(
    "--leader-elect-lease-duration",
    type=float,
    default=15,
    show_default=True,
    metavar="SECONDS",
    help="Time after which a lease that is not renewed may be taken over.",
)
@click.option(
    "--leader-elect-renew-deadline",
    type=float,
    default=10,
    show_default=True,
    metavar="SECONDS",
    help="Time after which a leader that cannot renew its lease stops.",
)
@click.option(
    "--leader-elect-retry-period",
    type=float,
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="Time between attempts.",
)
@click.option(
    "--qps",
    type=click.FloatRange(min=0),
    default=50,
    show_default=True,
    help="Maximum requests per second; 0 for no limit.",
)
@click.option(
    "--burst",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="Maximum number of requests in a burst.",
)
@click.option(
    "--metrics-listen",
    default="",
    metavar="HOST:PORT",
    help="Serve /healthz, /readyz and /metrics on this address (plain HTTP).",
)
@click.option(
    "--mirror",
    is_flag=True,
    help="Also run Jobs managed by onejob.dev/mirror, on the clusters that they select.",
)
@click.option(
    "--workflows",
    is_flag=True,
    help="Also run Workflows and CronWorkflows, whose definitions onejob manifests prints.",
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
    workflows: bool,
    verbose: int,
    log_format: str,
) -> int:
    """Manage the Jobs of a Kubernetes cluster whose spec.managedBy names onejob.

    It replaces the Job controller of kube-controller-manager for these Jobs, with the same
    behaviour. Pods run on the nodes of the cluster.
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
        raise CommandError(str(error), "select another file with --kubeconfig") from None
    settings = Settings(
        manager=manager_name,
        namespaces=tuple(dict.fromkeys(namespace)),
        leader_elect=leader_elect,
        timing=timing,
        own_namespace=leader_elect_namespace,
        qps=qps,
        burst=burst,
        mirror=mirror,
        workflows=workflows,
    )
    log_to_stderr(verbose, log_format)
    return _run(settings, connection, listen)


def _run(settings: "Settings", connection: "Connection", listen: tuple[str, int] | None) -> int:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run_manager(settings, connection, listen))


async def _run_manager(
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
                "choose another address with --metrics-listen",
            ) from None
        print(f"metrics at http://{listen[0]}:{listening}/metrics", flush=True)
    print(
        f"running Jobs managed by {settings.manager} on {connection.server} ({version})",
        flush=True,
    )
    try:
        await manager.run(stopping)
    except Exception as error:
        print(f"error: {_first_of(error)!r}; restart onejob controller", file=sys.stderr)
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
