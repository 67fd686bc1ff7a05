"""Single executable file: a shell script, followed by a ZIP archive of all wheels."""

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

#: Versions of CPython that the file supports.
PYTHONS: Final = ("3.11", "3.12", "3.13")

_HERE: Final = Path(__file__).resolve().parent
#: The earliest time stamp of a ZIP archive: equal input gives equal bytes.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
_TAGS: Final = re.compile(r"-(?P<python>[^-]+)-(?P<abi>[^-]+)-(?P<platform>[^-]+)\.whl$")


class MissingWheel(Exception):
    """No wheel for a locked package and one of `PYTHONS`."""


def write_single_file(
    target: Path, version: str, own: Path, wheels: Iterable[Path], locked: Mapping[str, str]
) -> None:
    """Write the executable from our wheel and the wheels of the locked versions.

    Raises MissingWheel.
    """
    every = sorted(wheels)
    by_python = {
        python: [own, *(_wheel_for(name, locked[name], python, every) for name in sorted(locked))]
        for python in PYTHONS
    }
    content = _archive(by_python)
    key = f"{version}-{hashlib.sha256(content).hexdigest()[:16]}"
    script = (_HERE / "launcher.sh").read_text()
    head = script.replace("@VERSION@", version).replace("@KEY@", key)
    target.write_bytes(head.encode() + content)
    target.chmod(0o755)


def _archive(by_python: Mapping[str, list[Path]]) -> bytes:
    buffer = io.BytesIO()
    # Wheels are compressed already.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as bundle:
        names = {python: [path.name for path in found] for python, found in by_python.items()}
        bundle.writestr(_entry("__main__.py"), (_HERE / "unpack.py").read_text())
        bundle.writestr(_entry("wheels.json"), json.dumps(names, indent=1))
        paths = {path.name: path for found in by_python.values() for path in found}
        for name in sorted(paths):
            _require_plain(paths[name])
            bundle.writestr(_entry(f"wheels/{name}"), paths[name].read_bytes())
    return buffer.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _TIME)
    entry.external_attr = 0o644 << 16
    return entry


def _require_plain(path: Path) -> None:
    """Check that unpacking the wheel is all that its installation takes."""
    with zipfile.ZipFile(path) as wheel:
        moved = [n for n in wheel.namelist() if re.search(r"\.data/(purelib|platlib|data)/", n)]
    if moved:
        raise MissingWheel(f"{path.name} contains {moved[0]}, which an installer would move")


def _wheel_for(name: str, version: str, python: str, wheels: list[Path]) -> Path:
    found = [
        path
        for path in wheels
        if path.name.split("-")[:2] == [name.replace("-", "_"), version] and _fits(path, python)
    ]
    if not found:
        raise MissingWheel(f"{name} {version} for CPython {python}")
    return found[0]


def _fits(path: Path, python: str) -> bool:
    tags = _TAGS.search(path.name)
    if tags is None:
        return False
    if tags["platform"] == "any":
        return "py3" in tags["python"].split(".")
    if "manylinux" not in tags["platform"] or "x86_64" not in tags["platform"]:
        return False
    exact = "cp" + python.replace(".", "")
    if tags["abi"] == "abi3":
        minimum = int(tags["python"].removeprefix("cp3"))
        return minimum <= int(python.partition(".")[2])
    return tags["python"] == exact and tags["abi"] == exact
