"""`onejob mcp`: Model Context Protocol server on standard input and output."""

import click

from onejob.cli.errors import CommandError
from onejob.cli.options import data_dir_option

_EPILOG = """\b
Examples:
  onejob mcp                                  # read-only, namespace default
  onejob mcp --allow-write -n agents --kubeconfig agent.kubeconfig

It needs the extra `mcp` of the package. The agent has the permissions of the kubeconfig: create one
with onejob user add."""


@click.command(epilog=_EPILOG, short_help="Serve tools for agents (MCP)")
@click.option("--allow-write", is_flag=True, help="Add the tools that create Jobs.")
@data_dir_option
@click.option(
    "--kubeconfig",
    metavar="FILE",
    help="Use the server of this kubeconfig instead of the one in the data directory.",
)
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    metavar="NAME",
    help="The only namespace that tools read and write.",
)
def command(allow_write: bool, data_dir: str | None, kubeconfig: str | None, namespace: str) -> int:
    """Serve tools that validate, submit, explain and repeat Jobs to an agent, over stdio."""
    try:
        import mcp.server  # noqa: F401
    except ImportError:
        raise CommandError(
            "onejob mcp needs the package mcp", "install it beside onejob: pip install 'mcp>=2'"
        ) from None
    from onejob.cli.mcp.server import make_server

    where = [f"--data-dir={data_dir}"] if data_dir else []
    if kubeconfig:
        where.append(f"--kubeconfig={kubeconfig}")
    make_server(where, namespace, allow_write=allow_write).run("stdio")
    return 0
