"""Manual pages from the table of commands: `onejob.1`, and a page for each command."""

import re
from collections.abc import Iterator

import click

from onejob.cli.main import COMMANDS, cli


def manual_pages(version: str) -> dict[str, str]:
    """Return the text of each page by its file name."""
    root = click.Context(cli, info_name="onejob")
    pages = {"onejob.1": _page(version, "onejob", cli, root, _table())}
    for name in COMMANDS:
        command = cli.get_command(root, name)
        assert command is not None
        own = click.Context(command, root, name)
        parts = []
        if isinstance(command, click.Group):
            for part in command.list_commands(own):
                inner = command.get_command(own, part)
                assert inner is not None
                parts += _part(name, part, inner, click.Context(inner, own, part))
        pages[f"onejob-{name}.1"] = _page(version, f"onejob {name}", command, own, parts)
    return pages


def _page(
    version: str, title: str, command: click.Command, context: click.Context, more: list[str]
) -> str:
    name = title.replace(" ", "-")
    # No date: equal input gives equal bytes.
    lines = [f'.TH "{name.upper()}" "1" "" "onejob {version}" "onejob Manual"']
    lines += [".SH NAME", f"{_text(name)} \\- {_text(_summary(title, command))}"]
    lines += [".SH SYNOPSIS", _usage(title, command, context)]
    lines += [".SH DESCRIPTION", *_paragraphs(command.help or "")]
    lines += _options(command, context, ".SH OPTIONS")
    lines += more
    lines += _epilog(command.epilog or "")
    if title != "onejob":
        lines += [".SH SEE ALSO", ".BR onejob (1)"]
    return "\n".join(lines) + "\n"


def _summary(title: str, command: click.Command) -> str:
    _, _, name = title.partition(" ")
    return COMMANDS[name][1] if name else (command.help or "")


def _usage(title: str, command: click.Command, context: click.Context) -> str:
    return f".B {_text(title)}\n{_text(' '.join(command.collect_usage_pieces(context)))}"


def _part(name: str, part: str, command: click.Command, context: click.Context) -> list[str]:
    usage = " ".join(command.collect_usage_pieces(context))
    return [
        f'.SH "ONEJOB {name.upper()} {part.upper()}"',
        f".B {_text(f'onejob {name} {part}')}",
        _text(usage),
        *_paragraphs(command.help or ""),
        *_options(command, context, ".SS Options"),
        *_epilog(command.epilog or "", ".SS Examples"),
    ]


def _table() -> list[str]:
    lines = [".SH COMMANDS"]
    for name, (_, text) in COMMANDS.items():
        lines += [".TP", f".BR onejob\\-{_text(name)} (1)", _text(text)]
    return lines


def _options(command: click.Command, context: click.Context, heading: str) -> list[str]:
    lines: list[str] = []
    for option in command.get_params(context):
        record = option.get_help_record(context) if isinstance(option, click.Option) else None
        if record is not None:
            lines += [".TP", f"\\fB{_text(record[0])}\\fR", _text(record[1])]
    return [heading, *lines] if lines else []


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.replace("\b", "").split("\n\n"):
        if paragraph.strip():
            yield ".PP"
            yield _text(" ".join(paragraph.split()))


def _epilog(text: str, heading: str = ".SH EXAMPLES") -> list[str]:
    lines: list[str] = []
    rest: list[str] = []
    for paragraph in text.replace("\b", "").strip("\n").split("\n\n"):
        rows = [row for row in paragraph.splitlines() if row]
        indented = [row.removeprefix("  ") for row in rows if row.startswith("  ")]
        prose = [row for row in rows if not row.startswith("  ") and row != "Examples:"]
        if indented:
            lines += [".nf", *map(_text, indented), ".fi"]
        if prose:
            rest += [".PP", _text(" ".join(prose))]
    return [*([heading, *lines] if lines else []), *rest]


def _text(text: str) -> str:
    """Escape text for roff. ASCII quotes and hyphens stay what one can copy and type."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    escaped = escaped.replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha")
    return re.sub(r"^([.])", r"\\&\1", escaped.replace("~", "\\(ti"), flags=re.MULTILINE)
