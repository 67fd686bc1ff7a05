"""Entry point of a probe process: runs one probe, writes its measurement to stdout as JSON only."""

import os
import sys
from importlib import import_module

import msgspec

from onejob.benchmarks.used_nodes import used_nodes


def main(probe: str, sizes: str) -> None:
    # Programs started by a probe may print; that must not mix with the JSON on stdout.
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
