"""`make peer-suites`: integration suites of other projects, with onejob as envtest's programs.

Each suite runs unmodified, first with `onejob envtest-assets` and then with the real etcd and
kube-apiserver, if `make upstream` has built them.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.managers.building import JOBSET, CannotBuild, Manager, NoGo, build_test
from tests.upstream.building import APISERVER, ETCD, cache, missing

#: Seconds after which Ginkgo ends a suite.
_TIMEOUT: Final = 3600


@dataclass(frozen=True, slots=True)
class Suite:
    manager: Manager
    package: str


SUITES: Final[Mapping[str, Suite]] = {
    "jobset-webhook": Suite(JOBSET, "test/integration/webhook"),
    "jobset-controller": Suite(JOBSET, "test/integration/controller"),
}


@dataclass(frozen=True, slots=True)
class Result:
    passed: int
    #: Names of failed specs.
    failed: tuple[str, ...]
    skipped: int

    def __str__(self) -> str:
        return f"{self.passed} passed, {len(self.failed)} failed, {self.skipped} skipped"


def read_report(report: Path) -> Result:
    """Return the result in a JUnit report of Ginkgo."""
    passed, skipped = 0, 0
    failed: list[str] = []
    for case in ET.parse(report).iter("testcase"):
        name, status = case.get("name", ""), case.get("status", "")
        # Nodes such as [BeforeSuite] are cases, too, but no specs.
        if status == "passed":
            passed += name.startswith("[It]")
        elif status in ("skipped", "pending"):
            skipped += name.startswith("[It]")
        else:
            failed.append(name)
    return Result(passed, tuple(failed), skipped)


def main(arguments: Sequence[str]) -> int:
    names = arguments or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        _say(f"unknown suites: {', '.join(unknown)}; known: {', '.join(SUITES)}")
        return 2
    bad = False
    with tempfile.TemporaryDirectory(prefix="peer-suites-") as place:
        folder = Path(place)
        try:
            for name in names:
                for server, assets in _servers(folder).items():
                    result = _run(SUITES[name], assets, folder / f"{name}-{server}.xml")
                    _say(f"{name} on {server}: {result}")
                    for spec in result.failed:
                        _say(f"  failed: {spec}")
                    bad |= server == "onejob" and bool(result.failed)
        except NoGo as error:
            _say(f"skipped: {error}")
            return 0
        except CannotBuild as error:
            _say(str(error))
            return 1
    return int(bad)


def _servers(folder: Path) -> dict[str, Path]:
    """Return the folders of envtest's programs, by the name of the server."""
    ours = folder / "onejob"
    command = [sys.executable, "-m", "onejob", "envtest-assets", str(ours)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    servers = {"onejob": ours}
    if not missing((ETCD, APISERVER)):
        real = folder / "kube-apiserver"
        real.mkdir(exist_ok=True)
        kubectl = shutil.which("kubectl")
        programs = [cache() / ETCD.name, cache() / APISERVER.name]
        for program in [*programs, *([Path(kubectl)] if kubectl else [])]:
            link = real / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
        servers["kube-apiserver"] = real
    return servers


def _run(suite: Suite, assets: Path, report: Path) -> Result:
    program, sources = build_test(suite.manager, suite.package)
    subprocess.run(
        [program, f"-ginkgo.timeout={_TIMEOUT}s", f"-ginkgo.junit-report={report}"],
        cwd=sources,
        env={**os.environ, "KUBEBUILDER_ASSETS": str(assets)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
        check=False,
    )
    if not report.exists():
        return Result(0, ("the suite wrote no report",), 0)
    return read_report(report)


def _say(text: str) -> None:
    print(f"peer-suites: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
