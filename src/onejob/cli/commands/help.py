"""`onejob help COMMAND`: the same text as `onejob COMMAND --help`."""

import click

_EPILOG = """\b
Examples:
  onejob help
  onejob help run
  onejob help cron next"""


@click.command(epilog=_EPILOG, short_help="Show help")
@click.argument("names", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def command(context: click.Context, names: tuple[str, ...]) -> int:
    """Show help for onejob or one of its commands."""
    from onejob.cli.command_suggestions import no_such_command

    assert context.parent is not None
    shown = context.parent
    for number, name in enumerate(names, 1):
        group = shown.command
        found = group.get_command(shown, name) if isinstance(group, click.Group) else None
        if found is None:
            known = group.list_commands(shown) if isinstance(group, click.Group) else ()
            raise no_such_command(name, " ".join(names[:number]), known)
        shown = click.Context(found, info_name=name, parent=shown)
    print(shown.get_help())
    return 0
