"""From nothing to a finished Job with each artefact: `make installs`.

Every way has an empty home folder and empty caches. Downloads of dependencies are included, the
artefacts themselves (in dist/) and the installers uv and pipx are there already.
"""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from onejob import __version__
from tests.release.support import ROOT

JOB = "run -- echo hi"


def main() -> None:
    tools = Path(sys.argv[1]).resolve()
    dist = ROOT / "dist"
    wheel = dist / f"onejob-{__version__}-py3-none-any.whl"
    ways = {
        "wheel, pip": (f"python3 -m venv v && v/bin/pip install -q {wheel}", "v/bin/onejob"),
        "sdist, pip": (
            f"python3 -m venv v && v/bin/pip install -q {dist}/onejob-{__version__}.tar.gz",
            "v/bin/onejob",
        ),
        "wheel, uv": (f"uv tool install -q {wheel}", "$HOME/.local/bin/onejob"),
        "wheel, pipx": (f"pipx install -q {wheel}", "$HOME/.local/bin/onejob"),
        "single file": ("true", f"{dist}/onejob-{__version__}-linux-x86_64"),
    }
    for name, (install, program) in ways.items():
        with tempfile.TemporaryDirectory() as home:
            print(f"{name}:")
            run(install, home, tools)
            for _ in range(2):
                printed = run(f"{program} {JOB}", home, tools)
                assert "] hi" in printed, printed
                assert "Complete" in printed, printed


def run(command: str, home: str, tools: Path) -> str:
    # No setting of the caller decides where packages come from, except the index itself.
    index = {k: v for k, v in os.environ.items() if k.endswith(("_INDEX_URL", "_CERT", "_proxy"))}
    config = {k: v for k, v in os.environ.items() if k in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE")}
    path = f"{tools}:/usr/local/bin:/usr/bin:/bin"
    began = time.monotonic()
    done = subprocess.run(
        ["sh", "-c", command],
        env={**index, **config, "UV_SYSTEM_CERTS": "1", "HOME": home, "PATH": path},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    took = time.monotonic() - began
    if done.returncode:
        raise SystemExit(f"{shlex.quote(command)} failed:\n{done.stdout}{done.stderr}")
    print(f"  {took:6.2f} s  {command.replace(str(ROOT) + '/', '')}", flush=True)
    return done.stdout


if __name__ == "__main__":
    main()
