"""`onejob mirror`: target clusters for Jobs with `managedBy: onejob.dev/mirror`."""

from typing import TYPE_CHECKING, Any, Final

import click

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import client_options, data_dir_option, output_option

if TYPE_CHECKING:
    from onejob.cli.sources.base import Api
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob mirror add prod --kubeconfig prod.yaml   # add a remote cluster
  onejob mirror list   # list and test
  onejob mirror remove prod"""

_ADD_EPILOG = """\b
Examples:
  onejob mirror add prod --kubeconfig ~/.kube/config --context prod
  onejob mirror add prod --kubeconfig new.yaml --replace   # new credentials"""

_LIST_EPILOG = """\b
Examples:
  onejob mirror list
  onejob mirror list -o json"""

_REMOVE_EPILOG = """\b
Examples:
  onejob mirror remove prod"""

#: The virtual node of a target is named after it, and names have at most 63 characters.
_MAX_NAME_LENGTH: Final = 44


@click.group(epilog=_EPILOG, short_help="Manage remote clusters for mirrored Jobs")
def command() -> None:
    """Manage remote clusters for Jobs with `managedBy: onejob.dev/mirror`."""


@command.command("add", epilog=_ADD_EPILOG, short_help="Add a remote cluster")
@click.argument("name")
@click.option(
    "--kubeconfig", required=True, metavar="FILE", help="Kubeconfig of the remote cluster."
)
@click.option(
    "--context",
    default="",
    metavar="NAME",
    help="Context of the kubeconfig. [default: the current context]",
)
@click.option("--replace", is_flag=True, help="Replace the kubeconfig of an existing target.")
@click.option(
    "--check/--no-check", default=True, help="Test the connection to the remote cluster first."
)
@click.option(
    "--server-kubeconfig",
    metavar="FILE",
    help="Kubeconfig of onejob, instead of the server of the data directory.",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="Namespace of the Jobs. [default: the server's default]",
)
@data_dir_option
def add(
    name: str,
    kubeconfig: str,
    context: str,
    replace: bool,
    check: bool,
    server_kubeconfig: str | None,
    namespace: str | None,
    data_dir: str | None,
) -> None:
    """Store the credentials of a remote cluster as Secret NAME, for Jobs of the same namespace with
    the annotation onejob.dev/mirror-target: NAME.

    Only one context is stored; the contents of referenced files are embedded. Exec plugins, auth
    providers, proxies and insecure TLS are rejected: otherwise any user who can write Secrets could
    make the server run programs or send credentials elsewhere.
    """
    from pathlib import Path

    from onejob.cli.sources.selection import sources
    from onejob.client.inline_kubeconfig import inlined_kubeconfig
    from onejob.client.kubeconfig import InvalidKubeconfig
    from onejob.wire.names import subdomain_errors

    if subdomain_errors(name) or len(name) > _MAX_NAME_LENGTH:
        raise CommandError(
            f"invalid target name {name!r}",
            f"use lower case letters, digits, '-' and '.', at most {_MAX_NAME_LENGTH} characters",
        )
    try:
        text = inlined_kubeconfig(Path(kubeconfig), context)
    except InvalidKubeconfig as error:
        raise CommandError(str(error)) from None
    if check:
        _check(text)
    where = sources(data_dir, server_kubeconfig, namespace)
    try:
        api = where.require_server()
        changed = _write(api, where.namespace_in(api), name, text, replace=replace)
    finally:
        where.close()
    print(f"target {name} {'replaced' if changed else 'added'}")
    print(f"Jobs use it with managedBy: onejob.dev/mirror and onejob.dev/mirror-target: {name}")


def _check(text: bytes) -> None:
    """Check that the cluster answers and lets us list Jobs. Raises CommandError."""
    from onejob.cli.sources.base import ApiRequest, path_of
    from onejob.cli.sources.http_api import HttpApi
    from onejob.client.inline_kubeconfig import read_inline_kubeconfig
    from onejob.objects.meta import JOBS
    from onejob.wire.errors import ApiError
    from onejob.wire.kinds import BY_RESOURCE

    connection = read_inline_kubeconfig(text, "kubeconfig")
    api = HttpApi(connection, "--no-check adds it anyway")
    try:
        api.send(
            ApiRequest("GET", path_of(BY_RESOURCE[JOBS], connection.namespace), {"limit": "1"})
        )
    except ApiError as error:
        raise CommandError(
            f"{connection.server}: {error.message}", "--no-check adds it anyway"
        ) from None
    finally:
        api.close()


def _write(api: "Api", namespace: str, name: str, text: bytes, *, replace: bool) -> bool:
    """Store the target's kubeconfig; return whether the target existed before."""
    import base64

    import msgspec

    from onejob.cli.sources.base import ApiRequest, path_of
    from onejob.planning.mirror.names import KUBECONFIG_KEY, TARGET_LABEL
    from onejob.wire.errors import AlreadyExists
    from onejob.wire.kinds import BY_RESOURCE

    kind = BY_RESOURCE["secrets"]
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name, "labels": {TARGET_LABEL: "true"}},
        "data": {KUBECONFIG_KEY: base64.b64encode(text).decode()},
    }
    body = msgspec.json.encode(secret)
    try:
        api.send(ApiRequest("POST", path_of(kind, namespace), body=body))
    except AlreadyExists:
        if not replace:
            raise CommandError(
                f"Secret {name} already exists", "--replace replaces its kubeconfig"
            ) from None
        api.send(
            ApiRequest(
                "PATCH",
                path_of(kind, namespace, name),
                body=body,
                content_type="application/merge-patch+json",
            )
        )
        return True
    return False


@command.command("list", epilog=_LIST_EPILOG, short_help="List targets and test them")
@output_option("json")
@client_options
def list_targets(output: str | None, where: "Sources") -> None:
    """List the targets of a namespace with the number of their Jobs, and test them."""
    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of

    api = where.require_server()
    found = _targets(api, where.namespace_in(api))
    if output:
        import msgspec

        print(msgspec.json.encode({"targets": found}).decode())
        return
    if not found:
        print("No targets found (onejob mirror add NAME --kubeconfig FILE).")
        return
    rows = [
        (one["name"], one["server"], str(one["jobs"]), str(one["unfinished"]), one["state"])
        for one in found
    ]
    headers = ("NAME", "SERVER", "JOBS", "UNFINISHED", "STATE")
    for line in render_table(headers, rows, terminal_of().width):
        print(line)
    for one in found:
        if one["message"]:
            print(f"{one['name']}: {one['message']}")


def _targets(api: "Api", namespace: str) -> list[dict[str, Any]]:
    from onejob.cli.sources.base import list_all
    from onejob.diagnosis.mirrors import describe_targets
    from onejob.planning.mirror.names import TARGET_LABEL
    from onejob.wire.kinds import BY_RESOURCE

    secrets = list_all(api, BY_RESOURCE["secrets"], namespace, labelSelector=TARGET_LABEL)
    return describe_targets(secrets, _mirrored_jobs(api, namespace))


def _mirrored_jobs(api: "Api", namespace: str) -> list[dict[str, Any]]:
    from onejob.cli.sources.base import list_all
    from onejob.diagnosis.mirrors import is_mirrored
    from onejob.objects.meta import JOBS
    from onejob.wire.kinds import BY_RESOURCE

    return [job for job in list_all(api, BY_RESOURCE[JOBS], namespace) if is_mirrored(job)]


@command.command("remove", epilog=_REMOVE_EPILOG, short_help="Remove a remote cluster")
@click.argument("name")
@click.option("--force", is_flag=True, help="Remove it even if Jobs have copies there.")
@client_options
def remove(name: str, force: bool, where: "Sources") -> None:
    """Delete the credentials of a target. Refused while Jobs have copies there, because these could
    no longer be tracked or deleted."""
    from onejob.cli.sources.base import ApiRequest, get, path_of
    from onejob.diagnosis.mirrors import target_of
    from onejob.planning.mirror.names import FINALIZER, TARGET_LABEL
    from onejob.wire.kinds import BY_RESOURCE

    api = where.require_server()
    namespace = where.namespace_in(api)
    kind = BY_RESOURCE["secrets"]
    secret = get(api, kind, namespace, name)
    if TARGET_LABEL not in secret["metadata"].get("labels", {}):
        raise CommandError(f"Secret {name} is not a mirror target", "see onejob mirror list")
    using = [
        job["metadata"]["name"]
        for job in _mirrored_jobs(api, namespace)
        if target_of(job) == name and FINALIZER in job["metadata"].get("finalizers", ())
    ]
    if using and not force:
        others = f" and {len(using) - 1} more" if len(using) > 1 else ""
        raise CommandError(
            f"job/{using[0]}{others} may have a copy at {name}",
            "delete the Jobs first, or use --force",
            exit_code=EXIT_FAILED,
        )
    api.send(ApiRequest("DELETE", path_of(kind, namespace, name)))
    print(f"target {name} removed")
