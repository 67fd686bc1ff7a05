"""`make peer-suites`: integration suites of other projects, with onejob as envtest's programs.

Each suite runs unmodified: with `onejob envtest-assets`, and with the real etcd and kube-apiserver
if `make upstream` has built them.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.managers.building import CannotBuild, NoGo, build_test, prepare_sources
from tests.managers.peers import KNOWN_FAILURES, SUITES, Suite
from tests.upstream.building import APISERVER, ETCD, cache, missing

#: Seconds after which a suite is ended.
_TIMEOUT: Final = 3600
_OURS: Final = "onejob"
_REAL: Final = "kube-apiserver"
#: Line of `go test -v` at the end of a test or of a part of one.
_ENDED: Final = re.compile(r"^( *)--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


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


def read_output(text: str) -> Result:
    """Return the result in the output of `go test -v`; a test with parts counts as its parts."""
    ended = [(outcome, name) for _, outcome, name in _ENDED.findall(text)]
    with_parts = {name.rpartition("/")[0] for _, name in ended}
    found: dict[str, list[str]] = {"PASS": [], "FAIL": [], "SKIP": []}
    for outcome, name in ended:
        if name not in with_parts:
            found[outcome].append(name)
    return Result(len(found["PASS"]), tuple(found["FAIL"]), len(found["SKIP"]))


def compared(suite: str, results: Mapping[str, Result]) -> Iterator[tuple[str, bool]]:
    """Yield a line per failed spec, and whether it is an unknown failure of onejob only."""
    ours, real = results[_OURS].failed, results.get(_REAL)
    known = KNOWN_FAILURES.get(suite, {})
    for spec in ours:
        reason = known.get(spec, "unknown")
        there = "not run" if real is None else "fails" if spec in real.failed else "passes"
        only_ours = there != "fails"
        yield f"failed: {spec} ({_REAL}: {there}): {reason}", only_ours and spec not in known
    for spec in real.failed if real else ():
        if spec not in ours:
            yield f"failed with {_REAL} only: {spec}", False
    for spec in known:
        if spec not in ours:
            yield f"known as failing, but passed: {spec}", True


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="peer-suites")
    parser.add_argument("suites", nargs="*", help="all if none is named")
    parser.add_argument("--focus", help="regular expression of names of specs")
    parser.add_argument("--logs", type=Path, help="folder for the suites' output")
    parser.add_argument("--on", choices=(_OURS, _REAL), help="run on one of the servers only")
    options = parser.parse_args(arguments)
    names = options.suites or list(SUITES)
    if unknown := [name for name in names if name not in SUITES]:
        _say(f"unknown suites: {', '.join(unknown)}; known: {', '.join(SUITES)}")
        return 2
    bad = False
    with tempfile.TemporaryDirectory(prefix="peer-suites-") as place:
        folder = Path(place)
        logs = options.logs or folder
        logs.mkdir(parents=True, exist_ok=True)
        try:
            for name in names:
                results = {}
                for server, assets in _servers(folder).items():
                    if options.on not in (None, server):
                        continue
                    log = logs / f"{name}-{server}.log"
                    results[server] = _run(SUITES[name], assets, log, options.focus)
                    _say(f"{name} with {server}: {results[server]}")
                if _OURS in results:
                    for line, is_bad in compared(name, results):
                        _say(f"  {line}")
                        bad |= is_bad
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
    servers = {_OURS: ours}
    if not missing((ETCD, APISERVER)):
        real = folder / _REAL
        real.mkdir(exist_ok=True)
        kubectl = shutil.which("kubectl")
        programs = [cache() / ETCD.name, cache() / APISERVER.name]
        for program in [*programs, *([Path(kubectl)] if kubectl else [])]:
            link = real / program.name
            link.unlink(missing_ok=True)
            link.symlink_to(program)
        servers[_REAL] = real
    return servers


def _run(suite: Suite, assets: Path, log: Path, focus: str | None) -> Result:
    sources = prepare_sources(suite.manager, suite.copied, suite.kustomized)
    program = build_test(sources, suite.manager, suite.package)
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    command: list[str | Path] = [program, f"-test.timeout={_TIMEOUT + 60}s"]
    if suite.has_specs:
        command += [f"-ginkgo.timeout={_TIMEOUT}s", f"-ginkgo.junit-report={report}"]
        command += [f"-ginkgo.focus={focus}"] if focus else []
    else:
        command += ["-test.v", *([f"-test.run={focus}"] if focus else [])]
    with log.open("wb") as output:
        subprocess.run(
            command,
            cwd=sources / suite.package,
            env={**os.environ, "KUBEBUILDER_ASSETS": str(assets), "ARTIFACTS": str(log.parent)},
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if not suite.has_specs:
        return read_output(log.read_text(errors="replace"))
    if not report.exists():
        return Result(0, ("the suite wrote no report",), 0)
    return read_report(report)


def _say(text: str) -> None:
    print(f"peer-suites: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
