"""Pack the built dashboard into the archive that the server reads and git tracks.

    python ui/pack.py             # ui/dist -> src/onejob/dashboard/page.zip
    python ui/pack.py --check     # exit 1 unless the archive was packed from today's sources
    python ui/pack.py --compare   # exit 1 unless the archive holds the same files as ui/dist

The archive is tracked so that a clone without Node.js has a dashboard. Its members are gzip
streams, stored as the server sends them, and its comment is a digest of the sources: `--check`
needs no Node.js. `--compare` reads the contents, because other versions of zlib compress otherwise.
"""

import gzip
import hashlib
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "ui"
BUILT = SOURCES / "dist"
ARCHIVE = ROOT / "src" / "onejob" / "dashboard" / "page.zip"
#: Folders and files below ui/ that do not change the built page.
NOT_SOURCES = {"dist", "node_modules", "pack.py", "__pycache__"}
#: Equal contents give an equal archive.
EPOCH = (1980, 1, 1, 0, 0, 0)


def main(arguments: list[str]) -> int:
    match arguments:
        case []:
            pack()
            print(f"{ARCHIVE.relative_to(ROOT)}: {ARCHIVE.stat().st_size} bytes")
            return 0
        case ["--check"]:
            return report(not ARCHIVE.is_file() or archived_digest() != source_digest())
        case ["--compare"]:
            return report(not ARCHIVE.is_file() or archived_files() != built_files())
        case _:
            print("usage: pack.py [--check | --compare]", file=sys.stderr)
            return 2


def pack() -> None:
    """Write the archive; its previous content stays in place until the new one is complete."""
    files = built_files()
    if "index.html" not in files:
        raise SystemExit(f"{BUILT.relative_to(ROOT)} holds no index.html: run make ui")
    unfinished = ARCHIVE.with_suffix(".tmp")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_STORED) as archive:
        for name, content in files.items():
            archive.writestr(
                zipfile.ZipInfo(f"{name}.gz", EPOCH), gzip.compress(content, 9, mtime=0)
            )
        archive.comment = source_digest().encode()
    unfinished.replace(ARCHIVE)


def report(stale: bool) -> int:
    if stale:
        print(
            f"{ARCHIVE.relative_to(ROOT)} was not built from these sources: "
            "run `make ui` and commit it",
            file=sys.stderr,
        )
    return int(stale)


def source_digest() -> str:
    """Return a SHA-256 over names and contents of the page's sources."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        name = path.relative_to(SOURCES)
        if path.is_file() and name.parts[0] not in NOT_SOURCES:
            digest.update(f"{name.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def archived_digest() -> str:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return archive.comment.decode()


def archived_files() -> dict[str, bytes]:
    with zipfile.ZipFile(ARCHIVE) as archive:
        return {
            name.removesuffix(".gz"): gzip.decompress(archive.read(name))
            for name in archive.namelist()
        }


def built_files() -> dict[str, bytes]:
    return {
        path.relative_to(BUILT).as_posix(): path.read_bytes()
        for path in sorted(BUILT.rglob("*"))
        if path.is_file()
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
