"""`onejob user`: further users of a server, with their tokens and role bindings."""

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from onejob.cli.display.durations import duration
from onejob.cli.errors import CommandError
from onejob.cli.options import client_options, data_dir_option, output_option

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob user add alice --role edit -n team-a   # writes alice.kubeconfig
  onejob user add ci --role edit -n ci --expires 720h
  onejob user list
  onejob user revoke alice

Roles are those of Kubernetes: view, edit and admin, in a namespace or with --cluster in all. Use
kubectl create role and rolebinding for others."""

_ADD_EPILOG = """\b
Examples:
  onejob user add alice --role edit -n team-a
  onejob user add auditor --role view --cluster --expires 24h"""

_LIST_EPILOG = """\b
Examples:
  onejob user list
  onejob user list -o json"""

_REVOKE_EPILOG = """\b
Examples:
  onejob user revoke alice"""


@click.group(epilog=_EPILOG, short_help="Manage users of a server")
def command() -> None:
    """Add, list and revoke users of a server."""


@command.command("add", epilog=_ADD_EPILOG, short_help="Add a user and write their kubeconfig")
@click.argument("name")
@click.option(
    "--group", "groups", multiple=True, metavar="GROUP", help="Add the user to this group."
)
@click.option(
    "--expires", type=duration, metavar="DURATION", help="Lifetime of the token, e.g. 720h."
)
@click.option(
    "--role",
    default="",
    metavar="ROLE",
    help="Bind this ClusterRole, e.g. view, edit or admin.",
)
@click.option("--cluster", is_flag=True, help="Bind the role in all namespaces.")
@click.option(
    "--kubeconfig-out", metavar="FILE", help="Kubeconfig to write. [default: NAME.kubeconfig]"
)
@client_options
def add(
    name: str,
    groups: tuple[str, ...],
    expires: float | None,
    role: str,
    cluster: bool,
    kubeconfig_out: str | None,
    where: "Sources",
) -> None:
    """Add a user and write a kubeconfig with the only copy of the user's token."""
    from onejob.api.access.kubeconfig_writer import write_kubeconfig
    from onejob.api.access.users import (
        USERS_FILE,
        BadUsers,
        UserExists,
        add_user,
        revoke_user,
    )
    from onejob.client.kubeconfig import load_kubeconfig
    from onejob.clock import SystemClock

    if expires is not None and expires <= 0:
        raise CommandError("--expires must be positive")
    if cluster and not role:
        raise CommandError("--cluster requires --role", "specify both")
    if where.kubeconfig is not None:
        raise CommandError("users can be added only on the server's machine", "remove --kubeconfig")
    target = Path(kubeconfig_out or f"{name.replace('/', '_')}.kubeconfig")
    if target.exists():
        raise CommandError(f"{target} already exists", "choose another name with --kubeconfig-out")
    api = where.require_server()
    now = SystemClock().now()
    users = where.data_dir.server / USERS_FILE
    until = None if expires is None else now + timedelta(seconds=expires)
    try:
        token = add_user(users, name, groups, now, until)
    except UserExists as error:
        raise CommandError(
            str(error), f"to replace the token, run onejob user revoke {name} first"
        ) from None
    except BadUsers as error:
        raise CommandError(str(error)) from None
    try:
        namespace = where.namespace_in(api)
        connection = load_kubeconfig(where.data_dir.kubeconfig, SystemClock())
        write_kubeconfig(
            target,
            server=connection.server,
            authority=connection.authority or b"",
            token=token,
            user=name,
            namespace=namespace,
        )
        made = _bind(where, name, role, "" if cluster else namespace) if role else None
        rights = list(_rights(where, name, groups, made))
    except BaseException:
        # Revoke the user: without a kubeconfig the token was never handed out.
        target.unlink(missing_ok=True)
        revoke_user(users, name)
        raise
    print(f"user {name} added; give {target} to the user and keep no copy")
    if not rights:
        command = f"kubectl create rolebinding {name} --clusterrole edit --user {name}"
        rights = [f"the user has no permissions yet: {command}"]
    for line in rights:
        print(line)


@command.command("list", epilog=_LIST_EPILOG, short_help="List users")
@data_dir_option
@output_option("json")
def list_users(data_dir: str | None, output: str | None) -> None:
    """List users. Tokens are not stored, so they cannot be shown."""
    import msgspec

    from onejob.api.access.users import USERS_FILE, BadUsers, read_users
    from onejob.cli.display.tables import render_table
    from onejob.cli.display.terminal import terminal_of
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.clock import SystemClock

    place = find_data_dir(data_dir)
    place.require_trusted()
    try:
        users = read_users(place.server / USERS_FILE)
    except BadUsers as error:
        raise CommandError(str(error)) from None
    if output:
        shown = [
            {
                "name": user.name,
                "groups": user.groups,
                "createdAt": user.created_at,
                "expiresAt": user.expires_at,
            }
            for user in users
        ]
        print(msgspec.json.encode(shown).decode())
        return
    if not users:
        print("no users (onejob user add NAME)")
        return
    now = SystemClock().now()
    rows = [
        (
            user.name,
            ",".join(user.groups) or "<none>",
            user.created_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            _expiry(user.expires_at, expired=user.expired(now)),
        )
        for user in users
    ]
    for line in render_table(("NAME", "GROUPS", "CREATED", "EXPIRES"), rows, terminal_of().width):
        print(line)


@command.command("revoke", epilog=_REVOKE_EPILOG, short_help="Revoke a user's access")
@click.argument("name")
@data_dir_option
def revoke(name: str, data_dir: str | None) -> None:
    """Revoke a user's access, effective with the next request. Role bindings are kept."""
    from onejob.api.access.users import USERS_FILE, BadUsers, revoke_user
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.require_trusted()
    try:
        revoke_user(place.server / USERS_FILE, name)
    except BadUsers as error:
        raise CommandError(str(error), "onejob user list lists them") from None
    print(f"user {name} revoked")


def _expiry(time: Any, *, expired: bool) -> str:
    if time is None:
        return "never"
    return f"{time:%Y-%m-%dT%H:%M:%SZ}{' (expired)' if expired else ''}"


def _bind(where: "Sources", user: str, role: str, namespace: str) -> tuple[str, str]:
    """Bind the role to the user; return namespace and name of the binding.

    A binding left by an earlier user of this name is reused.
    """
    from onejob.cli.manifests.loading import manifest_from_document
    from onejob.cli.manifests.sending import create
    from onejob.cli.sources.base import get
    from onejob.planning.rbac.policy import (
        CLUSTER_ROLE_BINDINGS,
        CLUSTER_ROLES,
        GROUP,
        ROLE_BINDINGS,
    )
    from onejob.wire.errors import NotFound
    from onejob.wire.kinds import BY_RESOURCE

    api = where.require_server()
    try:
        get(api, BY_RESOURCE[CLUSTER_ROLES], "", role)
    except NotFound:
        raise CommandError(
            f"--role {role}: ClusterRole not found", "for example view, edit or admin"
        ) from None
    try:
        if namespace:
            get(api, BY_RESOURCE["namespaces"], "", namespace)
    except NotFound:
        raise CommandError(
            f"namespace {namespace} not found",
            f"create it with onejob create namespace {namespace}",
        ) from None
    kind = BY_RESOURCE[ROLE_BINDINGS if namespace else CLUSTER_ROLE_BINDINGS]
    name = f"onejob:{user}:{role}"
    document = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": GROUP, "kind": "User", "name": user}],
    }
    try:
        kept = get(api, kind, namespace, name)
    except NotFound:
        create(api, manifest_from_document(document), namespace)
    else:
        if any(kept.get(field) != document[field] for field in ("roleRef", "subjects")):
            raise CommandError(
                f"{kind.singular} {name} already exists, with another role or other users",
                "delete it, or remove --role",
            )
    return namespace, name


def _rights(
    where: "Sources", user: str, groups: tuple[str, ...], made: tuple[str, str] | None
) -> "Iterator[str]":
    """Yield a line for each binding of the user, also those left by an earlier user of the name."""
    from onejob.cli.sources.base import list_all
    from onejob.planning.rbac.policy import CLUSTER_ROLE_BINDINGS, MASTERS, ROLE_BINDINGS
    from onejob.wire.kinds import BY_RESOURCE

    if MASTERS in groups:
        yield f"all permissions, through group {MASTERS}"
    api = where.require_server()
    meant = {("User", user), *(("Group", group) for group in groups)}
    for resource in (CLUSTER_ROLE_BINDINGS, ROLE_BINDINGS):
        kind = BY_RESOURCE[resource]
        for binding in list_all(api, kind, ""):
            subjects = {(one.get("kind"), one.get("name")) for one in binding.get("subjects") or ()}
            if not subjects & meant:
                continue
            namespace, name = binding["metadata"].get("namespace", ""), binding["metadata"]["name"]
            place = f"namespace {namespace}" if namespace else "all namespaces"
            before = f" (existing {kind.singular} {name})"
            known = "" if (namespace, name) == made else before
            yield f"role {binding['roleRef']['name']} in {place}{known}"
