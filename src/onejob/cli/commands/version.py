"""`onejob version`: client and server versions."""

from typing import TYPE_CHECKING

import click

from onejob.cli.options import client_options, output_option

if TYPE_CHECKING:
    from onejob.cli.sources.selection import Sources

_EPILOG = """\b
Examples:
  onejob version
  onejob version --client -o json"""


@click.command(epilog=_EPILOG, short_help="Print versions")
@click.option("--client", is_flag=True, help="Print only the versions of the client.")
@output_option("json", "yaml")
@client_options
def command(client: bool, output: str | None, where: "Sources") -> int:
    """Print the versions of onejob, of its Kubernetes API, and of the server."""
    from onejob import __version__
    from onejob.api.schema.schema import load_schema
    from onejob.cli.sources.base import ApiRequest
    from onejob.cli.sources.selection import ServerDown

    versions = {"onejob": f"v{__version__}", "kubernetesApi": load_schema().release}
    down = "no server is running (onejob serve)"
    server = None
    if not client:
        try:
            server = where.server()
        except ServerDown as error:
            down = error.lines[0]
    if server is not None:
        versions["server"] = server.send(ApiRequest("GET", "/version")).document["gitVersion"]
    if output:
        from onejob.cli.display.output import rendered

        print(rendered(versions, output), end="")
        return 0
    print(f"onejob {versions['onejob']}")
    print(f"Kubernetes API {versions['kubernetesApi']}")
    if server is not None:
        print(f"server {versions['server']}")
    elif not client:
        print(down)
    return 0
