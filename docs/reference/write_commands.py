"""Write commands.md from the help of the commands: `python docs/reference/write_commands.py`."""

from pathlib import Path

import click

from onejob.cli.main import COMMANDS, cli

TARGET = Path(__file__).with_name("commands.md")

HEAD = """\
# Commands

Written by `write_commands.py` from the `--help` texts.

Errors are one line on stderr, `error: MESSAGE (NEXT STEP)`. The exit code is 2 for wrong usage or
invalid input and 1 for a failed operation. `ONEJOB_DEBUG=1` shows the traceback of an internal
error. Colours are used only on a terminal, and not with `NO_COLOR`.

State is stored in the data directory, `$XDG_STATE_HOME/onejob` or `~/.local/state/onejob`, readable
only by its user: `kubeconfig` and `server/` of `onejob serve`, `runs/ID/` of each `onejob run`.
Client commands use `--kubeconfig`, else the server of the data directory, else the kept runs.
They never read `$KUBECONFIG`, and `~/.kube/config` only for a run that was started with `--on`.
If the data directory contains a server, lists come from it or, with `--runs`, from the kept
runs; a stopped server is an error. An object that exists only in a run is shown from there if
its name is specified, with a note on stderr; if a server responds and the run has ended, only
with `--run`.

A user who can write to the data directory can act as its admin. Therefore it must belong to the
user who runs onejob, and no other user may be able to write to it or replace it (through a parent
directory of another user, or one that is world-writable without the sticky bit). Links inside it
are not followed. If these rules are violated, every command fails with exit code 2, including
commands that only read.

Ctrl-C, SIGTERM, a closed terminal and `onejob stop` stop the Pods of a run with their grace period;
a second signal kills them. `get`, `describe` and `why` show unfinished Jobs of a run as `Stopped`
(by a signal or `--timeout`), `Blocked` (its Pods could never start) or `Lost` (the process of the
run was killed); the stored objects are not changed.
"""


def render() -> str:
    context = click.Context(cli, info_name="onejob")
    sections = [HEAD]
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        own = click.Context(command, context, name)
        sections.append(section(name, command, own))
        if isinstance(command, click.Group):
            for part in command.list_commands(own):
                inner = command.get_command(own, part)
                assert inner is not None
                whole = f"{name} {part}"
                sections.append(section(whole, inner, click.Context(inner, own, part)))
    return "\n".join(sections)


def section(name: str, command: click.Command, context: click.Context) -> str:
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## onejob {name}", "", f"`onejob {name} {usage}`", ""]
    for paragraph in (command.help or "").split("\n\n"):
        lines += [" ".join(paragraph.split()), ""]
    options = [option for option in command.params if isinstance(option, click.Option)]
    if options:
        lines += ["| option | description |", "|---|---|"]
        lines += [row(option, context) for option in options]
        lines.append("")
    return "\n".join([*lines, *epilog(command.epilog or "")])


def epilog(text: str) -> list[str]:
    """Examples, which are indented, as a block; what is said of them below it, as paragraphs."""
    lines: list[str] = []
    for paragraph in text.replace("\b", "").strip("\n").split("\n\n"):
        rows = [row for row in paragraph.splitlines() if row and row != "Examples:"]
        prose = [row for row in rows if not row.startswith("  ")]
        indented = [row.removeprefix("  ") for row in rows if row.startswith("  ")]
        if prose:
            lines += [" ".join(prose), ""]
        if indented:
            lines += ["```", *indented, "```", ""]
    return lines


def row(option: click.Option, context: click.Context) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    takes_value = not option.is_flag and not option.count
    value = f" `{option.make_metavar(context)}`" if takes_value else ""
    default = f" [default: {option.default}]" if option.show_default else ""
    return f"| {escaped(names + value)} | {escaped((option.help or '') + default)} |"


def escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(render())
