"""`onejob completion`: shell completion scripts."""

import click

from onejob.cli.errors import CommandError

_EPILOG = """\b
Examples:
  onejob completion bash > ~/.local/share/bash-completion/completions/onejob
  onejob completion zsh  > "${fpath[1]}/_onejob"
  onejob completion fish > ~/.config/fish/completions/onejob.fish"""


@click.command(epilog=_EPILOG, short_help="Print a completion script")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> int:
    """Print a shell script that completes commands, options, files, kinds and names."""
    from click.shell_completion import get_completion_class

    completion = get_completion_class(shell)
    if completion is None:
        raise CommandError(f"unsupported shell {shell}")
    try:
        script = completion(context.find_root().command, {}, "onejob", "_ONEJOB_COMPLETE").source()
    except RuntimeError as error:
        # click runs the shell to find its version, which may fail.
        raise CommandError(str(error)) from None
    print(script)
    return 0
