"""`onejob ui`: the dashboard of a server, as the user of the kubeconfig, or of kept runs."""

import sys
from typing import TYPE_CHECKING

import click

from onejob.cli.options import client_options, runs_option

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob ui                # open a browser
  onejob ui --no-browser   # print a URL, valid once, for a minute
  onejob ui --kubeconfig alice.kubeconfig
  onejob ui --runs         # kept runs, even if there is a server
  onejob ui --run train    # the newest run of a Job

Without a server it shows kept runs, read-only, until Ctrl-C.

The page has the permissions of the kubeconfig's user. A session ends after an hour of inactivity,
after twelve hours, when the user's token is revoked or expires, or when the server stops. Browsers
warn once about the certificate, which the server's own authority has signed."""


@click.command(epilog=_EPILOG, short_help="Open the dashboard of a server")
@click.option("--no-browser", is_flag=True, help="Print the URL without opening a browser.")
@runs_option
@client_options
def command(no_browser: bool, where: "Sources") -> int:
    """Open the dashboard of a server in a browser and sign in; without a server, of kept runs."""
    if where.kubeconfig is None and where.listed_server() is None:
        return _show_kept_runs(where, browser=not no_browser)
    return _open_server_page(where, no_browser)


def _show_kept_runs(where: "Sources", *, browser: bool) -> int:
    from onejob.cli.errors import CommandError
    from onejob.cli.kept_pages.serving import serve_kept_runs
    from onejob.cli.kept_runs import find_run, kept_runs

    runs = where.data_dir.runs
    run = find_run(runs, where.run)[1] if where.run else None
    if run is not None and run.on is not None:
        raise CommandError(f"run {run.id} is on {run.on.name}", "see its cluster")
    if next(kept_runs(runs), None) is None:
        if not where.only_runs:
            where.require_server()
        raise CommandError("no kept runs", "start one with onejob run")
    serve_kept_runs(where.data_dir, run, browser=browser)
    return 0


def _open_server_page(where: "Sources", no_browser: bool) -> int:
    from urllib.parse import urlencode

    from onejob.cli.display.browsers import open_browser
    from onejob.cli.sources.base import ApiRequest
    from onejob.cli.sources.http_api import HttpApi

    api = where.require_server()
    assert isinstance(api, HttpApi), "a server is reached over HTTPS"
    code = api.send(ApiRequest("POST", "/ui/api/codes")).document["code"]
    address = f"{api.url}/ui/#/sign-in/{code}"
    # Without -n and with the default namespace, the page starts with all namespaces.
    namespace = where.namespace_in(api)
    if where.namespace or namespace != "default":
        address += "?" + urlencode({"namespace": namespace})
    if no_browser or not open_browser(address):
        why = "" if no_browser else "cannot open a browser: "
        print(address, flush=True)
        print(f"note: {why}open this URL within a minute; it is valid once", file=sys.stderr)
    else:
        print(f"opened {api.url}/ui/ in a browser (--no-browser prints the URL instead)")
    return 0
