"""Extraction of tar streams from a server, which may contain anything, into a local directory."""

import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.node.supervisor.paths import beneath, folder_of, open_regular

_PIECE: Final = 256 * 1024


class _Pieces:
    """Readable file over an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._rest += piece
        found, self._rest = self._rest[:size], self._rest[size:]
        return found


def extract(pieces: Iterator[bytes], destination: Path) -> tuple[int, int]:
    """Write the files of an archive below a directory; return their number and total size.

    Existing files are overwritten. Only regular files and directories are written, and only below
    the directory: a name that leads out of it, or through a link, ends the command. Raises
    CommandError.
    """
    files = size = 0
    try:
        destination.mkdir(parents=True, exist_ok=True)
        with (
            folder_of(str(destination)) as top,
            tarfile.open(fileobj=_Pieces(pieces), mode="r|") as archive,  # type: ignore[call-overload]
        ):
            for member in archive:
                parts = [part for part in member.name.split("/") if part not in ("", ".")]
                if ".." in parts or member.name.startswith("/"):
                    raise CommandError(
                        f"the archive has a file outside of itself: {member.name[:100]!r}",
                        exit_code=EXIT_FAILED,
                    )
                if member.isdir():
                    with beneath(top, "/".join(parts), make=0o755):
                        continue
                if not member.isreg() or not parts:
                    continue
                with beneath(top, "/".join(parts[:-1]), make=0o755) as folder:
                    _write(archive, member, folder, parts[-1])
                files, size = files + 1, size + member.size
    except tarfile.TarError as error:
        raise CommandError(f"the archive is incomplete: {error}", exit_code=EXIT_FAILED) from None
    except OSError as error:
        name = error.filename or destination
        raise CommandError(f"{name}: {error.strerror}", exit_code=EXIT_FAILED) from None
    return files, size


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: int, name: str) -> None:
    content = archive.extractfile(member)
    assert content is not None, "a regular file"
    mode = 0o755 if member.mode & 0o100 else 0o644
    fd = open_regular(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode, dir_fd=folder)
    with open(fd, "wb") as target:
        while piece := content.read(_PIECE):
            target.write(piece)
