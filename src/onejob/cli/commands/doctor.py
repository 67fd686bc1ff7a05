"""`onejob doctor`: integrity check of a server's state, its repair, removal of damaged objects, and
export of intact ones."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.options import data_dir_option

if TYPE_CHECKING:
    from onejob.store.checking.examination import Examination

_EPILOG = """\b
Examples:
  onejob doctor
  onejob doctor --export whole.json   # for create -f on a new server
  onejob doctor --repair              # drop damaged objects
  onejob doctor --remove jobs.batch/default/pi

Without --repair and --remove nothing is changed, and the server may be running. The exit code is 1
if there are problems."""


@click.command(epilog=_EPILOG, short_help="Check and repair the state of a server")
@click.option(
    "--export",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write all intact objects to a new file.",
)
@click.option(
    "--repair",
    "wants_repair",
    is_flag=True,
    help="Replace a damaged database by its intact objects. The damaged one is kept.",
)
@click.option(
    "--remove",
    "removed",
    multiple=True,
    metavar="OBJECT",
    help="Delete a damaged object, named as in the report; may be repeated.",
)
@data_dir_option
def command(
    target: Path | None, wants_repair: bool, removed: tuple[str, ...], data_dir: str | None
) -> None:
    """Check the state of a server for damage: database, objects, and the supervisor's journal."""
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.require_trusted()
    database = place.server / "onejob.db"
    if not place.server.is_dir():
        raise CommandError(f"no server in {place.path}", "onejob serve creates one")
    if wants_repair and removed:
        raise CommandError("--repair removes all damaged objects: do not combine it with --remove")
    if wants_repair:
        _repair_database(database, target)
        return
    if removed:
        _remove(database, removed)
        return
    found = _examine(database)
    problems = [*found.problems, *_journal_problems(place.server / "supervisor")]
    _report(database, found, problems)
    if target is not None:
        _export(found, target)
    if problems:
        raise CommandError(
            f"{len(problems)} problems in {place.server}",
            "restore a backup (onejob restore), delete damaged objects with --remove, save "
            "intact objects with --export, or drop damaged objects with --repair",
            exit_code=EXIT_FAILED,
        )


def _examine(database: Path) -> "Examination":
    """Return the result of the database's check. Raises CommandError if it cannot be opened at
    all."""
    from onejob.api.unreadable import is_readable
    from onejob.store.base import CannotOpen, CorruptStore
    from onejob.store.checking.examination import examine

    try:
        return examine(database, is_readable)
    except CorruptStore as error:
        raise CommandError(str(error), "onejob restore", exit_code=EXIT_FAILED) from None
    except CannotOpen as error:
        raise CommandError(str(error), exit_code=EXIT_FAILED) from None


def _report(database: Path, found: "Examination", problems: list[str]) -> None:
    """Print the summary of a check, and its problems on stderr."""
    print(f"{database}: revision {found.revision}, {len(found.saved)} intact objects")
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)


def _repair_database(database: Path, target: Path | None) -> None:
    """Replace a damaged database by its intact objects, and print the losses.

    Exports them to `target`, too, unless it is None. Raises CommandError, also while a server is
    running.
    """
    from onejob.store.base import CannotOpen
    from onejob.store.checking.repair import complete_repair, repair
    from onejob.store.lock_file import LockFile

    try:
        lock = LockFile(database)
    except CannotOpen as error:
        raise CommandError(f"repair failed: {error}") from None
    try:
        if complete_repair(database):
            print("completed an interrupted repair; the damaged database is kept")
        found = _examine(database)
        _report(database, found, found.problems)
        if target is not None:
            _export(found, target)
        if not found.problems:
            print("nothing to repair")
            return
        kept = repair(database, found)
    except (CannotOpen, OSError) as error:
        raise CommandError(f"repair failed: {error}") from None
    finally:
        lock.release()
    more = f", and up to {found.unnamed} more that cannot be identified" if found.unnamed else ""
    print(f"repaired: {len(found.saved)} objects kept, {len(found.lost)} lost{more}")
    if found.outdated:
        print(f"up to {found.outdated} of the kept objects may be outdated")
    for key, revision in sorted(found.lost.items()):
        print(f"lost: {key} (revision {revision})")
    print(f"the damaged database was moved to {kept}")


def _remove(database: Path, names: Sequence[str]) -> None:
    """Delete the named damaged objects and print them; delete none if a name is not that of a
    damaged object. Raises CommandError."""
    import asyncio

    from onejob.api.unreadable import is_readable
    from onejob.store.base import CannotOpen, StoreError
    from onejob.store.removal import remove_damaged

    damaged = {str(key): key for key in _examine(database).lost}
    for name in names:
        if name not in damaged:
            raise CommandError(
                f"{name} is not a damaged object; no objects were removed",
                "onejob doctor lists damaged objects",
            )
    wanted = [damaged[name] for name in names]
    try:
        removed = asyncio.run(remove_damaged(database, wanted, is_readable))
    except (CannotOpen, StoreError, OSError) as error:
        raise CommandError(f"no objects were removed: {error}") from None
    for key, revision in removed.items():
        print(f"removed: {key} (revision {revision})")
    if len(removed) < len(set(wanted)):
        raise CommandError("the other objects are on damaged pages", "use onejob doctor --repair")


def _journal_problems(folder: Path) -> list[str]:
    """Return the problems of the supervisor's journal."""
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
        return [f"{path} is damaged: running Pods may be reported as disrupted"]
    return []


def _export(found: "Examination", target: Path) -> None:
    """Write the objects to a new file, as a List for `onejob create`.

    Encrypted Secrets are left out. Raises CommandError, also if the file exists.
    """
    from onejob.store.encryption import is_encrypted

    items = [
        saved.stored for _, saved in sorted(found.saved.items()) if not is_encrypted(saved.stored)
    ]
    text = b'{"apiVersion":"v1","kind":"List","items":[%s]}' % b",\n".join(items)
    try:
        with open(target, "xb") as file:
            file.write(text)
    except OSError as error:
        raise CommandError(f"export failed: {error}") from None
    left_out = len(found.saved) - len(items)
    note = f" ({left_out} encrypted Secrets were skipped)" if left_out else ""
    print(f"{target}: {len(items)} objects{note}")
