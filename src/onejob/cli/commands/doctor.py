"""`onejob doctor`: integrity check of a server's state, with advice on repair."""

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
  onejob doctor --export whole.json   # for a new server: create -f
  onejob doctor --repair              # give up what is lost
  onejob doctor --remove jobs.batch/default/pi

Without --repair and --remove nothing is changed, and the server may run. Ends with 1 if something
is wrong."""


@click.command(epilog=_EPILOG, short_help="Check whether the state of a server is whole")
@click.option(
    "--export",
    "target",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the objects that are whole into a new file.",
)
@click.option(
    "--repair",
    "wants_repair",
    is_flag=True,
    help="Replace a damaged database by one of what is whole. The damaged one is kept beside it.",
)
@click.option(
    "--remove",
    "removed",
    multiple=True,
    metavar="OBJECT",
    help="Delete an object whose document is damaged, named as in the report. May be repeated.",
)
@data_dir_option
def command(
    target: Path | None, wants_repair: bool, removed: tuple[str, ...], data_dir: str | None
) -> None:
    """Check whether the state of a server is whole: database, objects, and the supervisor's
    journal."""
    from onejob.cli.places import data_dir as find_data_dir

    place = find_data_dir(data_dir)
    place.require_trusted()
    database = place.server / "onejob.db"
    if not place.server.is_dir():
        raise CommandError(f"there is no server in {place.path}", "onejob serve makes one")
    if wants_repair and removed:
        raise CommandError("--repair removes all that is damaged: leave out --remove")
    if wants_repair:
        _repair(database, target)
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
            "restore a backup (onejob restore), delete damaged objects with --remove, save what is "
            "whole with --export, or go on without what is lost with --repair",
            exit_code=EXIT_FAILED,
        )


def _examine(database: Path) -> "Examination":
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
    print(f"{database}: revision {found.revision}, {len(found.saved)} whole objects")
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)


def _repair(database: Path, target: Path | None) -> None:
    from onejob.store.base import CannotOpen
    from onejob.store.checking.repair import complete_repair, repair
    from onejob.store.lock_file import LockFile

    try:
        lock = LockFile(database)
    except CannotOpen as error:
        raise CommandError(f"nothing was repaired: {error}") from None
    try:
        if complete_repair(database):
            print("completed the repair that was interrupted; the damaged database is kept")
        found = _examine(database)
        _report(database, found, found.problems)
        if target is not None:
            _export(found, target)
        if not found.problems:
            print("nothing to repair")
            return
        kept = repair(database, found)
    except (CannotOpen, OSError) as error:
        raise CommandError(f"nothing was repaired: {error}") from None
    finally:
        lock.release()
    more = f", and up to {found.unnamed} more that cannot be named" if found.unnamed else ""
    print(f"repaired: {len(found.saved)} objects are kept, {len(found.lost)} are lost{more}")
    if found.outdated:
        print(f"up to {found.outdated} of the objects kept may be older than they were")
    for key, revision in sorted(found.lost.items()):
        print(f"lost: {key} (revision {revision})")
    print(f"the damaged database is kept as {kept}")


def _remove(database: Path, names: Sequence[str]) -> None:
    import asyncio

    from onejob.api.unreadable import is_readable
    from onejob.store.base import CannotOpen, StoreError
    from onejob.store.checking.removal import remove_damaged

    damaged = {str(key): key for key in _examine(database).lost}
    for name in names:
        if name not in damaged:
            raise CommandError(
                f"{name} is not a damaged object: nothing was removed",
                "onejob doctor lists the damaged ones",
            )
    wanted = [damaged[name] for name in names]
    try:
        removed = asyncio.run(remove_damaged(database, wanted, is_readable))
    except (CannotOpen, StoreError, OSError) as error:
        raise CommandError(f"nothing was removed: {error}") from None
    for key, revision in removed.items():
        print(f"removed: {key} (revision {revision})")
    if len(removed) < len(set(wanted)):
        raise CommandError("the others are on damaged pages", "onejob doctor --repair")


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
    """Write the objects as a List for `onejob create`.

    Objects that a server creates by itself are omitted.
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
        raise CommandError(f"nothing was exported: {error}") from None
    left_out = len(found.saved) - len(items)
    note = f" ({left_out} encrypted Secrets are left out)" if left_out else ""
    print(f"{target}: {len(items)} objects{note}")
