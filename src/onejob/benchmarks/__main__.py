"""One probe in this process; what it found goes to stdout as JSON, and nothing else does."""

import os
import sys
from importlib import import_module

import msgspec

from onejob.benchmarks.used_nodes import used_nodes


def main(probe: str, sizes: str) -> None:
    # Programs that a probe starts may print; that must not end up in the answer.
    answer = os.dup(1)
    os.dup2(2, 1)
    module, _, function = probe.partition(":")
    measure = getattr(import_module(f"onejob.benchmarks.{module}"), function)
    measured = measure(**msgspec.json.decode(sizes))
    nodes = tuple(sorted({*used_nodes(), *measured.nodes}))
    measured = msgspec.structs.replace(measured, nodes=nodes)
    with open(answer, "wb") as stdout:
        stdout.write(msgspec.json.encode(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
