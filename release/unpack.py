"""First start of the single file: unpack the wheels for this Python, then run onejob.

Runs as `__main__.py` of the archive, with the target folder as first argument. The folder is a
minimal virtual environment, so that child processes find the same modules without environment
variables. It appears by a rename: a start that is killed leaves nothing that a later one would use.
"""

import json
import os
import platform
import shutil
import sys
import tempfile
import time
import zipfile

#: Seconds after which an unfinished folder of another start is considered abandoned.
ABANDONED_AFTER = 3600
SCRIPT = """\
import sys

from onejob.__main__ import main

sys.exit(main())
"""


def main() -> None:
    archive, folder, *arguments = sys.argv
    if platform.libc_ver()[0] != "glibc":
        refuse("this file needs glibc (install onejob with pip on other C libraries)")
    try:
        unpack(archive, folder)
    except OSError as error:
        refuse(
            f"cannot unpack to {folder}: {error.strerror} (set XDG_CACHE_HOME to a writable folder)"
        )
    python = os.path.join(folder, "bin", "python")
    os.execv(python, [python, os.path.join(folder, "bin", "onejob"), *arguments])


def unpack(archive: str, folder: str) -> None:
    parent = os.path.dirname(folder)
    os.makedirs(parent, mode=0o700, exist_ok=True)
    remove_abandoned(parent)
    unfinished = tempfile.mkdtemp(prefix="unfinished-", dir=parent)
    try:
        fill(archive, unfinished)
        publish(unfinished, folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def fill(archive: str, folder: str) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = os.path.join(folder, "lib", f"python{version}", "site-packages")
    os.makedirs(packages)
    with zipfile.ZipFile(archive) as bundle:
        for name in json.loads(bundle.read("wheels.json"))[version]:
            with bundle.open(f"wheels/{name}") as stored, zipfile.ZipFile(stored) as wheel:
                wheel.extractall(packages)
    interpreter: str = getattr(sys, "_base_executable", sys.executable)
    os.mkdir(os.path.join(folder, "bin"))
    os.symlink(interpreter, os.path.join(folder, "bin", "python"))
    with open(os.path.join(folder, "bin", "onejob"), "w") as script:
        script.write(SCRIPT)
    with open(os.path.join(folder, "pyvenv.cfg"), "w") as settings:
        settings.write(f"home = {os.path.dirname(interpreter)}\n")


def publish(unfinished: str, folder: str) -> None:
    try:
        os.rename(unfinished, folder)
    except OSError:
        if os.access(os.path.join(folder, "bin", "python"), os.X_OK):
            return  # Another start was faster.
        # Its interpreter was removed, or another user owns it: the rename then fails again.
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(unfinished, folder)


def remove_abandoned(parent: str) -> None:
    for entry in os.scandir(parent):
        if entry.name.startswith("unfinished-"):
            try:
                age = time.time() - entry.stat().st_mtime
            except OSError:
                continue
            if age > ABANDONED_AFTER:
                shutil.rmtree(entry.path, ignore_errors=True)


def refuse(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
