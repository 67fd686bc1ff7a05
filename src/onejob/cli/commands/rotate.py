"""`onejob rotate`: rotation of a server's keys, tokens and certificates while it runs."""

from typing import TYPE_CHECKING

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import data_dir_option

if TYPE_CHECKING:
    from datetime import datetime

    from onejob.cli.places import DataDir

_EPILOG = """\b
Examples:
  onejob rotate admin-token          # invalidates the old kubeconfig
  onejob rotate server-certificate   # for new connections
  onejob rotate token-key            # for service account tokens

A running server does not have to be restarted. Tokens signed with an older key are valid until they
expire."""


@click.command(epilog=_EPILOG, short_help="Replace a key, token or certificate of the server")
@click.argument("what", type=click.Choice(["admin-token", "server-certificate", "token-key"]))
@data_dir_option
def command(what: str, data_dir: str | None) -> None:
    """Replace a key, token or certificate of the server, without a restart."""
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.clock import SystemClock
    from onejob.trusted_paths import NotTrusted

    place = find_data_dir(data_dir)
    place.require_trusted()
    if not place.server.is_dir():
        raise CommandError(f"no server in {place.path}", "onejob serve creates one")
    now = SystemClock().now()
    try:
        match what:
            case "admin-token":
                _admin_token(place)
            case "server-certificate":
                _server_certificate(place, now)
            case _:
                _token_key(place, now)
    except (NotTrusted, OSError) as error:
        raise CommandError(f"cannot replace {what}: {error}") from None


def _admin_token(place: "DataDir") -> None:
    from onejob.api.access.admin_token import TOKEN_FILE, rotate_admin_token
    from onejob.api.access.kubeconfig_writer import write_kubeconfig
    from onejob.client.kubeconfig import load_kubeconfig
    from onejob.clock import SystemClock

    known = load_kubeconfig(place.kubeconfig, SystemClock()) if place.has_kubeconfig() else None
    token = rotate_admin_token(place.server / TOKEN_FILE)
    if known is None:
        print("admin token replaced; the server writes the kubeconfig when it starts")
        return
    write_kubeconfig(
        place.kubeconfig, server=known.server, authority=known.authority or b"", token=token
    )
    print(f"admin token replaced; updated {place.kubeconfig}")


def _server_certificate(place: "DataDir", now: "datetime") -> None:
    from onejob.api.access.certificates import BadAuthority, renew_server_certificate

    try:
        renew_server_certificate(place.server / "pki", now)
    except (BadAuthority, ValueError) as error:
        raise CommandError(f"cannot replace the server certificate: {error}") from None
    print("server certificate replaced; new connections use it, with the same authority")


def _token_key(place: "DataDir", now: "datetime") -> None:
    from onejob.api.access.service_accounts.signing_keys import KEYS_FILE, BadKeys, rotate_keys

    try:
        rotate_keys(place.server / "pki" / KEYS_FILE, now)
    except BadKeys as error:
        raise CommandError(str(error)) from None
    print("signing key replaced; existing service account tokens stay valid until they expire")
