"""All release artefacts: `python -m release.dist [--wheels DIR] [TARGET]`.

Writes nothing but files of the release into the target folder, which it empties first. Two runs
with the same sources and lock files write the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from onejob import __version__
from onejob.cli.main import cli
from release.manual import manual_pages
from release.sbom import locked_versions, sbom
from release.single_file import write_single_file

ROOT = Path(__file__).resolve().parent.parent
SERVICE = ROOT / "requirements" / "service.txt"
#: Name of each completion script below `completions/`, as the shells look for it.
SHELLS: dict[str, type[ShellComplete]] = {
    "onejob.bash": BashComplete, "_onejob": ZshComplete, "onejob.fish": FishComplete,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", nargs="?", type=Path, default=ROOT / "dist")
    parser.add_argument("--wheels", type=Path, help="wheels of the locked dependencies")
    options = parser.parse_args()
    for path in build(options.target, options.wheels):
        print(f"{path.stat().st_size:>10,}  {path}")


def build(target: Path, wheels: Path | None) -> list[Path]:
    """Build all artefacts; without `wheels`, all but the single file. Return their paths."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    build_packages(target)
    (own,) = target.glob("*.whl")
    write_shell_files(target / f"onejob-{__version__}-man-and-completions.tgz")
    dependencies = locked_versions(SERVICE)
    (target / f"onejob-{__version__}.cdx.json").write_text(sbom(__version__, dependencies))
    if wheels is not None:
        single = target / f"onejob-{__version__}-linux-x86_64"
        write_single_file(single, __version__, own, wheels.glob("*.whl"), dependencies)
    built = sorted(target.iterdir())
    sums = target / "SHA256SUMS"
    sums.write_text(
        "".join(f"{hashlib.sha256(p.read_bytes()).hexdigest()}  {p.name}\n" for p in built)
    )
    return [*built, sums]


def build_packages(target: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"hatchling failed:\n{done.stdout}{done.stderr}")


def write_shell_files(target: Path) -> None:
    """Write an archive of manual pages and completion scripts, below `man/` and `completions/`."""
    texts = {f"man/{name}": text for name, text in manual_pages(__version__).items()}
    for name, shell in SHELLS.items():
        script = shell(cli, {}, "onejob", "_ONEJOB_COMPLETE")
        # Not `source()`: for bash it runs the installed shell to find its version.
        texts[f"completions/{name}"] = script.source_template % script.source_vars()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(texts):
            content = texts[name].encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    target.write_bytes(gzip.compress(buffer.getvalue(), 9, mtime=0))


if __name__ == "__main__":
    main()
