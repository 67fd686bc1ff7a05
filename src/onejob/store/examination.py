"""What is wrong with a database, and what of it can be saved. Changes nothing, and may be used
while a server runs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
from msgspec import Struct, field

from onejob.objects.meta import Key
from onejob.store.base import CorruptStore
from onejob.store.copies import open_for_reading, problems_of
from onejob.store.damage import IsReadable
from onejob.store.database import Reader, readable
from onejob.store.limits import Limits
from onejob.store.recovery import recover

_COLUMNS = "revision, resource, namespace, name, value"


class Examination(Struct):
    #: One line each: what is damaged, so that a server would not start, or refuse an object.
    problems: list[str] = field(default_factory=list)
    #: The newest version of each object that is whole.
    documents: dict[Key, bytes] = field(default_factory=dict)
    revision: int = 0


def examine(path: Path, is_readable: IsReadable) -> Examination:
    """Raises CannotOpen in its kinds if nothing at all can be read."""
    found = Examination([f"{path.name}: {text}" for text in problems_of(path)])
    pages_are_whole = not found.problems
    newest: dict[Key, tuple[int, bytes | None]] = {}
    for revision, key, value in _rows(path):
        found.revision = max(found.revision, revision)
        if newest.get(key, (0, None))[0] < revision:
            newest[key] = revision, value
    for key, (revision, value) in newest.items():
        if value is None:
            continue
        if is_readable(key, value):
            found.documents[key] = value
        else:
            found.problems.append(f"{key}: its document (revision {revision}) cannot be read")
    if pages_are_whole and (contradiction := _contradiction(path, is_readable)):
        found.problems.append(contradiction)
    return found


def _rows(path: Path) -> Iterator[tuple[int, Key, bytes | None]]:
    """All that can be read: from the first up to a damaged page, and from the last back to it."""
    seen: set[int] = set()
    for order in ("ASC", "DESC"):
        with readable(path):
            connection = open_for_reading(path)
        try:
            cursor: Any = connection.execute(
                f"SELECT {_COLUMNS} FROM log ORDER BY revision {order}"
            )
            for revision, resource, namespace, name, value in cursor:
                if revision in seen:
                    break
                seen.add(revision)
                yield revision, Key(resource, namespace, name), value
            else:
                return
        except apsw.CorruptError:
            continue
        finally:
            connection.close()


def _contradiction(path: Path, is_readable: IsReadable) -> str:
    """Why a server would refuse the log though its pages are whole; empty if it would not."""
    reader = Reader(path)
    try:
        recover(reader, Limits(), 0.0, is_readable)
    except CorruptStore as error:
        return str(error)
    finally:
        reader.close()
    return ""
