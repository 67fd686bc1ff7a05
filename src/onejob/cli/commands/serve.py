"""`onejob serve`: the long-running server."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import (
    controller_options,
    data_dir_option,
    node_options,
    parse_listen,
    require_runtime,
)
from onejob.cli.server_log import log_options, log_to_stderr
from onejob.planning.names import TRACKING_NAMES

if TYPE_CHECKING:
    from onejob.api.access.tls_files import TlsFiles
    from onejob.api.audit.configuration import AuditSettings
    from onejob.cli.places import DataDir
    from onejob.control_plane import Settings
    from onejob.gates import FeatureGates
    from onejob.node.options import NodeOptions
    from onejob.planning.queue.limits import Limits
    from onejob.server import HttpsServer

_EPILOG = """\b
Examples:
  onejob serve                               # on 127.0.0.1:7443
  onejob serve --listen 127.0.0.1:0 --data-dir ~/ci-state
  onejob serve --runtime simulated           # Pods without processes
  onejob serve --queue '*=8' --queue gpu=2   # at most 8 Jobs, 2 in gpu
  onejob serve --controllers='*,-job' --no-node   # only the API

After any exit, including kill -9, a restarted server continues from its state on disk. Its Pods
keep running meanwhile."""


@click.command(epilog=_EPILOG, short_help="Serve the Kubernetes API")
@click.option(
    "--listen",
    default="127.0.0.1:7443",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to listen on (TLS only).",
)
@click.option(
    "--tracking-finalizer-name",
    type=click.Choice(TRACKING_NAMES),
    default=TRACKING_NAMES[0],
    metavar="NAME",
    help=f"Finalizer of Pods until they are counted: {TRACKING_NAMES[0]} or {TRACKING_NAMES[1]}. "
    "[default: the first]",
)
@click.option(
    "--controllers",
    default="*",
    show_default=True,
    metavar="NAME,-NAME,...",
    help="Controllers to run: * for all, NAME for one, -NAME to exclude one, '' for none.",
)
@click.option(
    "--no-node",
    is_flag=True,
    help="Run no Pods: another component binds them and reports their status.",
)
@click.option(
    "--tls-cert-file",
    metavar="FILE",
    help="TLS certificate and its chain. [default: a generated one]",
)
@click.option("--tls-private-key-file", metavar="FILE", help="Private key of --tls-cert-file.")
@click.option(
    "--client-ca-file",
    metavar="FILE",
    help="Authenticate users by client certificates of this authority.",
)
@click.option(
    "--allow-host-path",
    "host_paths",
    multiple=True,
    metavar="PATH",
    help="Allow hostPath volumes in this directory and below; may be repeated. [default: all]",
)
@click.option(
    "--webhook-host",
    default="",
    metavar="HOST",
    help="Call webhooks of Services without endpoints at this host, at the port of the Service. "
    "[default: such calls fail]",
)
@click.option(
    "--enable-admission-plugins",
    "plugins",
    default="",
    metavar="NAMES",
    help="Comma-separated admission plugins that add defaults to Pods, as on Kubernetes: "
    "DefaultTolerationSeconds, Priority. [default: none]",
)
@click.option(
    "--encryption-key-file",
    metavar="FILE",
    help="Encrypt Secrets on disk with the first key of this file, NAME:BASE64 per line. "
    "[default: no encryption]",
)
@click.option(
    "--audit-policy-file",
    metavar="FILE",
    help="Audit policy, audit.k8s.io/v1. [default: no auditing]",
)
@click.option("--audit-log-path", metavar="FILE", help="Audit log, as JSON lines; - for stdout.")
@click.option(
    "--audit-log-maxsize",
    type=click.IntRange(0),
    default=0,
    metavar="MIB",
    help="Rotate the audit log at this size. [default: 100]",
)
@click.option(
    "--audit-log-maxbackup",
    type=click.IntRange(0),
    default=0,
    metavar="N",
    help="Number of rotated audit logs to keep. [default: all]",
)
@click.option(
    "--audit-log-maxage",
    type=click.IntRange(0),
    default=0,
    metavar="DAYS",
    help="Days to keep rotated audit logs. [default: no limit]",
)
@click.option(
    "--notify-config",
    metavar="FILE",
    help="Notification targets: see docs/how-to/notifications.md. [default: notify.yaml in the "
    "data directory, if it exists]",
)
@click.option(
    "--otlp-endpoint",
    metavar="URL",
    help="Send OpenTelemetry traces to this endpoint, e.g. http://localhost:4318; requires "
    "onejob[otel]. [default: none]",
)
@log_options
@node_options
@controller_options
@data_dir_option
def command(
    listen: str,
    default_failed_pods_limit: int | None,
    queue_limits: "Limits | None",
    tracking_finalizer_name: str,
    controllers: str,
    no_node: bool,
    tls_cert_file: str | None,
    tls_private_key_file: str | None,
    client_ca_file: str | None,
    host_paths: tuple[str, ...],
    webhook_host: str,
    plugins: str,
    encryption_key_file: str | None,
    audit_policy_file: str | None,
    audit_log_path: str | None,
    audit_log_maxsize: int,
    audit_log_maxbackup: int,
    audit_log_maxage: int,
    notify_config: str | None,
    otlp_endpoint: str | None,
    verbose: int,
    log_format: str,
    node: "NodeOptions",
    gates: "FeatureGates",
    data_dir: str | None,
) -> int:
    """Serve the Kubernetes API over TLS and run Jobs and CronJobs.

    Writes an admin kubeconfig for kubectl and other clients to the data directory.
    """
    from msgspec.structs import replace

    from onejob.cli.notify_config import find_notify_config
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.cli.scratch_folders import RESTORE_PREFIX, remove_left_folders
    from onejob.cli.secret_files import patterns_of, patterns_of_rotated
    from onejob.cli.traces import traces_sent_to
    from onejob.clock import local_zone
    from onejob.control_plane import Settings
    from onejob.controllers.selection import UnknownController, select_controllers

    host, port = parse_listen(listen)
    enabled = _plugins(plugins)
    if not no_node:
        require_runtime(node)
    try:
        chosen = select_controllers(controllers)
    except UnknownController as error:
        raise CommandError(f"--controllers: {error}") from None
    rotation = (audit_log_maxsize, audit_log_maxbackup, audit_log_maxage)
    audit = _audit(audit_policy_file, audit_log_path, rotation)
    tls_files = _tls_files(tls_cert_file, tls_private_key_file, client_ca_file)
    place = find_data_dir(data_dir)
    place.prepare()
    remove_left_folders(place.path, RESTORE_PREFIX)
    notify = find_notify_config(notify_config, place)
    log_to_stderr(verbose, log_format)
    secrets = [encryption_key_file, tls_private_key_file, notify_config]
    if notify is not None:
        secrets += notify.secret_files
    hidden = (*patterns_of(secrets), *patterns_of_rotated(audit_log_path))
    settings = Settings(
        data_dir=place.server,
        node=replace(node, hidden=place.path, hidden_files=hidden),
        gates=gates,
        default_failed_pods_limit=default_failed_pods_limit,
        queue_limits=queue_limits,
        tracking_finalizer=tracking_finalizer_name,
        local_zone=local_zone(),
        controllers=chosen,
        with_node=not no_node,
        host_paths=_host_paths(host_paths),
        webhook_host=webhook_host,
        admission_plugins=enabled,
        encryption_keys=None if encryption_key_file is None else Path(encryption_key_file),
        audit=audit,
        notify=notify,
    )
    with traces_sent_to(otlp_endpoint):
        return _run(settings, host, port, place, tls_files)


def _plugins(names: str) -> frozenset[str]:
    from onejob.api.admission.pod_plugins import PLUGINS

    chosen = frozenset(name.strip() for name in names.split(",") if name.strip())
    if unknown := sorted(chosen - set(PLUGINS)):
        raise CommandError(
            f"--enable-admission-plugins: unknown plugin {unknown[0]}; known: {', '.join(PLUGINS)}"
        )
    return chosen


def _audit(
    policy: str | None, path: str | None, rotation: tuple[int, int, int]
) -> "AuditSettings | None":
    if policy is None and path is None:
        return None
    if policy is None or path is None:
        missing = "--audit-policy-file" if policy is None else "--audit-log-path"
        raise CommandError(f"{missing} is missing", "specify both policy and log")
    from onejob.api.audit.configuration import AuditSettings
    from onejob.api.audit.log_file import Rotation

    return AuditSettings(policy, path, Rotation(*rotation))


def _host_paths(given: tuple[str, ...]) -> tuple[str, ...] | None:
    from onejob.planning.pod.confinement import read_host_paths

    if not given:
        return None
    try:
        return tuple(path for text in given for path in read_host_paths(text))
    except ValueError as error:
        raise CommandError(f"--allow-host-path: {error} is not an absolute path") from None


def _tls_files(certificate: str | None, key: str | None, authority: str | None) -> "TlsFiles":
    from onejob.api.access.tls_files import TlsFiles

    if (certificate is None) != (key is None):
        missing = "--tls-private-key-file" if key is None else "--tls-cert-file"
        raise CommandError(f"{missing} is missing", "specify both certificate and key")
    paths = (Path(name) if name is not None else None for name in (certificate, key, authority))
    return TlsFiles(*paths)


def _run(
    settings: "Settings", host: str, port: int, place: "DataDir", tls_files: "TlsFiles"
) -> int:
    import asyncio

    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(settings, host, port, place, tls_files))


async def _serve(
    settings: "Settings", host: str, port: int, place: "DataDir", tls_files: "TlsFiles"
) -> int:
    import asyncio
    import signal

    from onejob import own_process
    from onejob.api.access.certificates import BadAuthority
    from onejob.api.access.service_accounts.signing_keys import BadKeys
    from onejob.api.access.tls_files import BadTlsFile
    from onejob.api.audit.log_file import CannotAudit
    from onejob.api.http.serving import CannotListen
    from onejob.memory_reserve import memory_reserve
    from onejob.node.runtime import RuntimeUnavailable
    from onejob.server import HttpsServer
    from onejob.store.base import CannotOpen
    from onejob.trusted_paths import NotTrusted

    _end_at_once_on_sigterm()
    own_process.raise_descriptor_limit()
    memory_reserve.hold()
    own_process.disable_gc_for_startup()
    try:
        server = await HttpsServer.start(
            settings, host=host, port=port, kubeconfig=place.kubeconfig, tls_files=tls_files
        )
    except CannotListen as error:
        raise CommandError(str(error), "choose another address with --listen") from None
    except NotTrusted as error:
        raise CommandError(str(error), "select another directory with --data-dir") from None
    except (
        BadAuthority,
        BadKeys,
        BadTlsFile,
        CannotAudit,
        CannotOpen,
        RuntimeUnavailable,
    ) as error:
        raise CommandError(str(error)) from None
    except OSError as error:
        raise CommandError(
            f"cannot start in {settings.data_dir}: {error}",
            "check the disk, or select another directory with --data-dir",
        ) from None
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    by_hand = False

    def stop(number: signal.Signals) -> None:
        nonlocal by_hand
        by_hand = number == signal.SIGINT
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    own_process.settle()
    _banner(server, settings)
    _notify_service_manager("READY=1")
    asked = asyncio.ensure_future(stopping.wait())
    ends: set[asyncio.Future[Any]] = {asked, server.plane.failed}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    _notify_service_manager("STOPPING=1")
    asked.cancel()
    if server.plane.failed.done():
        # In-memory state can no longer be trusted, so there is no orderly shutdown: the state on
        # disk is consistent, and the next start continues from it.
        print(f"error: {server.plane.failed.result()}; restart onejob serve", file=sys.stderr)
        return EXIT_FAILED
    if by_hand:
        _name_pods_that_run_on(server)
    await server.stop()
    return 0


def _name_pods_that_run_on(server: "HttpsServer") -> None:
    from onejob.planning.counts import counted

    plane = server.plane
    if not plane.settings.with_node or not plane.node.runtime.traits.runs_programs:
        return
    if count := plane.node.busy_pods:
        verb, them = ("keeps", "it") if count == 1 else ("keep", "them")
        print(
            f"note: {counted(count, 'Pod')} {verb} running; onejob serve resumes managing {them}",
            file=sys.stderr,
        )


def _end_at_once_on_sigterm() -> None:
    """Exit immediately on SIGTERM until the server is up, when there is nothing to shut down yet.

    The state on disk is consistent, as after a kill -9. An asyncio handler would run only at the
    loop's next turn.
    """
    import os
    import signal

    def end(*_: object) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        # PID 1 of a container is not terminated by a signal without a handler.
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, end)


def _banner(server: "HttpsServer", settings: "Settings") -> None:
    import os

    from onejob import __version__
    from onejob.api.schema.schema import load_schema

    on_host = settings.with_node and server.plane.node.runtime.traits.on_host
    if os.geteuid() == 0 and on_host and not settings.node.host_read_only:
        print(
            "note: running as root: Pods can change any file of this machine (prevent it with "
            "--host-fs ro)",
            file=sys.stderr,
        )
    print(
        f"onejob v{__version__} serves Kubernetes API {load_schema().release} at {server.url}\n"
        f"  state    {settings.data_dir}\n"
        f"  runtime  {settings.node.runtime if settings.with_node else 'none: no Pods run here'}\n"
        f"{_limits_line(server)}"
        "\n"
        "Next, in another terminal:\n"
        f"  export KUBECONFIG={server.kubeconfig}\n"
        "  onejob ui                  # open the dashboard\n"
        "  kubectl create job hello --image=busybox -- echo hello\n"
        "  onejob logs -f job/hello",
        flush=True,
    )


def _limits_line(server: "HttpsServer") -> str:
    if not server.plane.settings.with_node:
        return ""
    limits = server.plane.node.runtime.limits_in_force
    return "" if limits is None else f"  limits   {limits.text}\n"


def _notify_service_manager(state: str) -> None:
    """Send a state to systemd (Type=notify): one datagram, so no library is needed."""
    import os
    import socket

    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        try:
            sock.sendto(state.encode(), "\0" + address[1:] if address[0] == "@" else address)
        except OSError as error:
            print(f"note: cannot reach {address}: {error.strerror}", file=sys.stderr)
