"""The garbage collector of a process that is ours alone."""

import subprocess
import sys

_PROGRAM = """
import gc
from onejob import own_process

keeps = [{} for _ in range(10_000)]
own_process.settle()
assert not any(found is keeps for found in gc.get_objects()), "it would be looked at again"

collections = []
gc.callbacks.append(lambda phase, info: collections.append(phase))
for _ in range(4_000):
    keeps.append({})
assert not collections, "what a turn of the loop makes is no reason to look"
for _ in range(4_000):
    keeps.append({})
assert collections, "but cycles are found some day"
"""


def test_what_is_built_is_not_looked_at_again_but_garbage_is_found() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True)
