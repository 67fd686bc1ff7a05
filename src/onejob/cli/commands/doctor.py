"""`onejob doctor`: whether the state of a server is whole, and what to do if it is not."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import data_dir_option

if TYPE_CHECKING:
    from onejob.store.examination import Examination

_EPILOG = """\b
Examples:
  onejob doctor
  onejob doctor --export whole.json     # then: onejob create -f whole.json, on a new server
\b
Nothing is changed, and the server may run. Ends with 1 if something is wrong."""


@click.command(epilog=_EPILOG, short_help="Check whether the state of a server is whole")
@click.option(
    "--export",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the objects that are whole into a new file.",
)
@data_dir_option
def command(target: Path | None, data_dir: str | None) -> None:
    """Check whether the state of a server is whole: database, objects, and the supervisor's
    journal."""
    from onejob.api.damage import is_readable
    from onejob.cli.places import data_dir as find_data_dir
    from onejob.store.base import CannotOpen
    from onejob.store.examination import examine

    place = find_data_dir(data_dir)
    place.require_trusted()
    database = place.server / "onejob.db"
    if not place.server.is_dir():
        raise CommandError(f"there is no server in {place.path}", "onejob serve makes one")
    try:
        found = examine(database, is_readable)
    except CannotOpen as error:
        raise CommandError(str(error), "onejob restore", exit_code=EXIT_FAILED) from None
    problems = [*found.problems, *_journal_problems(place.server / "supervisor")]
    print(f"{database}: revision {found.revision}, {len(found.documents)} whole objects")
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    if target is not None:
        _export(found, target)
    if problems:
        raise CommandError(
            f"{len(problems)} problems in {place.server}",
            "restore a backup (onejob restore), delete the objects that are named, or save what is "
            "whole with --export",
            exit_code=EXIT_FAILED,
        )


def _journal_problems(folder: Path) -> list[str]:
    from onejob.node.supervisor.journal import NAME
    from onejob.node.supervisor.record_file import is_damaged
    from onejob.node.supervisor.versions import NewerVersion, require_known_journal

    path = folder / NAME
    try:
        require_known_journal(str(path))
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except (NewerVersion, OSError) as error:
        return [str(error)]
    if not data.startswith(b"[") and is_damaged(data):
        return [f"{path} is damaged: Pods that ran may be reported as disrupted"]
    return []


def _export(found: "Examination", target: Path) -> None:
    """As a list that `create` takes. What the server itself makes is left to the next one."""
    items = [document for _, document in sorted(found.documents.items())]
    text = b'{"apiVersion":"v1","kind":"List","items":[%s]}' % b",\n".join(items)
    try:
        with open(target, "xb") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"nothing was exported: {error}") from None
    print(f"{target}: {len(items)} objects")
