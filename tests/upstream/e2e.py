"""`make upstream-e2e`: Kubernetes' own end-to-end specs against `onejob serve`.

`--set NAME` chooses one of `spec_sets.SETS`, by default the 44 specs of Job, CronJob and TTL, which
take about 25 minutes sequentially. `--focus REGEX` chooses specs by their names instead. The parts
of a set run concurrently, each against a server of its own.

The suite's images are not pulled: busybox and pause run as the process runtime has them, agnhost is
built from the same module, and `--image-map IMAGE=COMMAND` names a stand-in for any other.
"""

import argparse
import ctypes
import fcntl
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.e2e.serving import a_server
from tests.upstream.building import AGNHOST, E2E, CannotBuild, build
from tests.upstream.known_failures import KNOWN_FAILURES
from tests.upstream.spec_sets import OFF_BY_DEFAULT, SETS, Part

# From sched.h, if.h and sockios.h of Linux.
_NEW_NETWORK: Final = 0x40000000
_UP, _RUNNING, _SET_FLAGS = 0x1, 0x40, 0x8914

#: Mounts tokens in Pods of default accounts, as Kubernetes does without being asked.
_TOKENS: Final = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: default-account-tokens}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [serviceaccounts]}
  matchConditions: [{name: default, expression: object.metadata.name == "default"}]
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{automountServiceAccountToken: true}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: default-account-tokens}
spec: {policyName: default-account-tokens}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one spec."""

    name: str
    passed: bool
    failure: str

    @property
    def sig(self) -> str:
        return self.name.partition("]")[0].lstrip("[")


@dataclass(frozen=True, slots=True)
class Run:
    """The programs, and the folder for logs and reports of the parts."""

    programs: Path
    results: Path
    image_map: Sequence[str]

    def part(self, name: str, part: Part) -> list[Outcome]:
        """Run the specs of a part. Raises AssertionError if the suite itself fails."""
        _take_own_network()
        report = self.results / f"{name}.json"
        with (
            tempfile.TemporaryDirectory(prefix="upstream-e2e-") as place,
            a_server(Path(place) / "onejob", *self._mapped(Path(place))) as server,
            (self.results / f"{name}.log").open("wb") as log,
        ):
            if part.tokens:
                server.kubectl("create", "--filename", "-", stdin=_TOKENS)
            subprocess.run(
                [
                    self.programs / E2E.name,
                    f"--kubeconfig={server.kubeconfig}",
                    "--provider=skeleton",
                    "--kube-api-content-type=application/json",
                    "--num-nodes=1",
                    "--minStartupPods=0",
                    "--dump-logs-on-failure=false",
                    "--disable-log-dump=true",
                    "--ginkgo.no-color",
                    "--ginkgo.timeout=3h",
                    f"--ginkgo.json-report={report}",
                    f"--ginkgo.focus={part.focus}",
                    f"--ginkgo.skip={part.skip}",
                ],
                cwd=place,
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
            (self.results / f"{name}.serve.log").write_text(server.log)
        assert report.exists(), f"the suite did not run: see {self.results / name}.log"
        return outcomes(report)

    def _mapped(self, place: Path) -> list[str]:
        """Return the options that give images of the suite a command."""
        agnhost = self._agnhost(place)
        stand_ins = {"agnhost": f"{agnhost}", "httpd": f"{agnhost}", "nginx": f"{agnhost}"}
        listed = subprocess.run(
            [self.programs / E2E.name, "--list-images"], capture_output=True, text=True, check=True
        )
        items = [
            f"{image}={stand_ins[name]}"
            for image in listed.stdout.split()
            if (name := image.rpartition("/")[2].partition(":")[0]) in stand_ins
        ]
        return [word for item in (*items, *self.image_map) for word in ("--image-map", item)]

    def _agnhost(self, place: Path) -> Path:
        """Write a stand-in for the entrypoint of agnhost's image, whose default is to pause."""
        folder = place / "bin"
        folder.mkdir(parents=True)
        # The cache may be in a home folder, where containers of other users cannot read it.
        place.chmod(0o755)
        program = folder / "program"
        shutil.copy(self.programs / AGNHOST.name, program)
        entrypoint = folder / AGNHOST.name
        entrypoint.write_text(
            f'#!/bin/bash\n[ $# -gt 0 ] || set -- pause\nexec -a /agnhost {program} "$@"\n'
        )
        entrypoint.chmod(0o755)
        return entrypoint


def _take_own_network() -> None:
    """Move this thread, and what it starts, into a network namespace of its own, if it may.

    Pods of the process runtime share the ports of their host; those of other parts must not.
    """
    if os.geteuid() != 0:
        return
    if ctypes.CDLL(None, use_errno=True).unshare(_NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")
    with socket.socket() as any_socket:
        request = struct.pack("16sh", b"lo", _UP | _RUNNING)
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


def outcomes(report: Path) -> list[Outcome]:
    """Read the report of Ginkgo. Specs that were not chosen, or skip themselves, are left out."""
    found = []
    for suite in json.loads(report.read_text()):
        for spec in suite["SpecReports"] or ():
            if spec["LeafNodeType"] == "It" and spec["State"] not in ("skipped", "pending"):
                name = " ".join([*(spec["ContainerHierarchyTexts"] or ()), spec["LeafNodeText"]])
                failure = " ".join((spec.get("Failure") or {}).get("Message", "").split())
                found.append(Outcome(name, spec["State"] == "passed", failure))
    return sorted(found, key=lambda outcome: outcome.name)


def report_lines(found: Sequence[Outcome], known: Mapping[str, str]) -> list[str]:
    """Return the counts of each SIG, then each failure with its reason or its message."""
    all_of, passed_of = Counter(o.sig for o in found), Counter(o.sig for o in found if o.passed)
    lines = [f"{sig}: {passed_of[sig]} of {all_of[sig]}" for sig in sorted(all_of)]
    lines.append(f"all: {passed_of.total()} of {all_of.total()}")
    for outcome in found:
        if not outcome.passed:
            reason = known.get(outcome.name)
            lines.append(f"FAILED {outcome.name}: {reason or outcome.failure[:300]}")
        elif outcome.name in known:
            lines.append(f"PASSED, contrary to known_failures.py: {outcome.name}")
    return lines


def surprises(found: Sequence[Outcome], known: Mapping[str, str]) -> list[Outcome]:
    """Return the specs that failed without being known to, or passed though known to fail."""
    return [outcome for outcome in found if outcome.passed == (outcome.name in known)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", default="jobs", choices=SETS)
    parser.add_argument("--focus", default="")
    parser.add_argument("--skip", default=OFF_BY_DEFAULT)
    parser.add_argument(
        "--tokens", action="store_true", help="with --focus: Pods of default accounts get tokens"
    )
    parser.add_argument("--image-map", action="append", default=[], metavar="IMAGE=COMMAND")
    parser.add_argument("--results", type=Path, help="keep logs and reports in this folder")
    options = parser.parse_args()
    try:
        programs = build([E2E, AGNHOST], _say)
    except CannotBuild as error:
        _say(f"skipped: {error}")
        return 0 if "not installed" in str(error) else 1
    chosen = Part(options.focus, options.skip, options.tokens)
    parts = {"focus": chosen} if options.focus else SETS[options.set]
    results = options.results or Path(tempfile.mkdtemp(prefix="upstream-e2e-results-"))
    results.mkdir(parents=True, exist_ok=True)
    _say(f"logs and reports are in {results}")
    run = Run(programs, results, options.image_map)
    with ThreadPoolExecutor(len(parts)) as pool:
        found = [o for part in pool.map(run.part, parts, parts.values()) for o in part]
    for line in report_lines(found, KNOWN_FAILURES):
        _say(line)
    return 1 if surprises(found, KNOWN_FAILURES) else 0


def _say(text: str) -> None:
    print(f"upstream-e2e: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
