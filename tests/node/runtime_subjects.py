"""Registered runtimes under test by the contract suite, with Pods that they run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from onejob.clock import SystemClock
from onejob.node.options import NodeOptions, SlurmOptions
from onejob.node.runtime import NodeContext, Runtime
from onejob.node.runtimes import runtime_kind
from onejob.node.simulated import DURATION, EXIT_CODE
from onejob.objects.pod_spec import NodePod, read_node_pod
from tests.node.podman.support import ENGINE, OPTIONS, script
from tests.node.support import NODE, ROOM, Document, a_pod, shell


class Subject(NamedTuple):
    """Runtime under test. `pod` returns a Pod that writes "hello" and a newline if its containers
    can write, runs for the given number of seconds, and exits with the given code."""

    options: NodeOptions
    pod: Callable[[int, int], Document]
    #: Whether Pods run for the seconds and end with the code that they are given. If not, they end
    #: at once with code 0, and tests that need others are skipped.
    lasts_and_fails: bool = True

    def make(self, data_dir: Path) -> Runtime:
        context = NodeContext(NODE, "127.0.0.1", ROOM)
        kind = runtime_kind(self.options.runtime)
        return kind.make(self.options, data_dir, SystemClock(), context)

    def node_pod(self, uid: str, *, seconds: int = 0, code: int = 0) -> NodePod:
        document = self.pod(seconds, code)
        document["metadata"]["uid"] = uid
        return read_node_pod(msgspec.json.encode(document))


def _script(seconds: int, code: int) -> str:
    return f"echo hello; sleep {seconds}; exit {code}"


def _simulated(seconds: int, code: int) -> Document:
    pod = a_pod()
    pod["metadata"]["annotations"] = {DURATION: str(seconds), EXIT_CODE: str(code)}
    return pod


SUBJECTS: Mapping[str, Subject] = {
    "process": Subject(
        NodeOptions(runtime="process", pid_namespace="off"),
        lambda seconds, code: shell(_script(seconds, code)),
    ),
    "podman": Subject(
        NodeOptions(runtime="podman", engine=ENGINE, engine_options=OPTIONS),
        lambda seconds, code: script(_script(seconds, code)),
    ),
    "slurm": Subject(
        NodeOptions(runtime="slurm", slurm=SlurmOptions(query_seconds=0.1, idle_seconds=3600)),
        lambda seconds, code: shell(_script(seconds, code)),
    ),
    "simulated": Subject(NodeOptions(runtime="simulated"), _simulated),
}
