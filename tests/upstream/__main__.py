"""`make upstream`: build the programs missing in the cache, start them once, print their path."""

import sys
import tempfile
from pathlib import Path

from tests.upstream.building import CLUSTER, CODEC, CannotBuild, build, missing, pinned
from tests.upstream.cluster import Upstream


def main() -> int:
    to_build = missing((*CLUSTER, CODEC))
    try:
        folder = build((*CLUSTER, CODEC), say)
    except CannotBuild as error:
        say(f"skipped: {error}")
        return 0 if "not installed" in str(error) else 1
    say("nothing to build" if not to_build else f"{len(to_build)} programs built")
    with tempfile.TemporaryDirectory(prefix="onejob-upstream-") as place, Upstream(Path(place)):
        say(f"Kubernetes {pinned('kubernetes')} with etcd {pinned('etcd')} starts")
    say(f"the programs are in {folder}")
    return 0


def say(text: str) -> None:
    print(f"upstream: {text}", flush=True)


sys.exit(main())
