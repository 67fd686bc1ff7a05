"""`make differential`: run every scenario on a real Kubernetes and on onejob, and compare.

--record     keep the responses of Kubernetes, for replays without it
--only GLOB  scenarios by name; may be given more than once
--replay     compare with the recording instead of starting Kubernetes
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from contextlib import AbstractAsyncContextManager, ExitStack
from fnmatch import fnmatchcase
from pathlib import Path

from tests.differential.comparing import Difference, differences
from tests.differential.known_differences import KNOWN
from tests.differential.registry import scenarios
from tests.differential.running import LogFileImport, load_recorded, play, prepare, save_recorded
from tests.differential.transports import AUDIT_POLICY, Transport, over_https
from tests.e2e.serving import a_server
from tests.upstream.building import CLUSTER, CannotBuild, build, pinned
from tests.upstream.cluster import Upstream

#: Scenarios running at once on each side.
_AT_ONCE = 16
_SWITCHED_OFF = "ServiceAccount,DefaultTolerationSeconds,Priority,TaintNodesByCondition"
_CONTROLLERS = (
    "job-controller,cronjob-controller,ttl-after-finished-controller,"
    "garbage-collector-controller,pod-garbage-collector-controller,namespace-controller,"
    "resourcequota-controller,validatingadmissionpolicy-status-controller"
)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--only", action="append", metavar="GLOB")
    parser.add_argument("--replay", action="store_true")
    options = parser.parse_args()
    names = [
        name
        for name in scenarios()
        if not options.only or any(fnmatchcase(name, glob) for glob in options.only)
    ]
    recorded = load_recorded()
    started = time.monotonic()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="differential-")))
        policy = place / "audit-policy.json"
        policy.write_text(json.dumps(AUDIT_POLICY))
        server = stack.enter_context(
            a_server(place / "onejob", "--no-node", *_audit(policy, place / "onejob.log"))
        )
        kubeconfigs = {"onejob": server.kubeconfig}
        if not options.replay:
            try:
                build(CLUSTER, _say)
            except CannotBuild as error:
                _say(f"skipped: {error}")
                return 0 if "not installed" in str(error) else 1
            flags = _audit(policy, place / "upstream.log")
            upstream = stack.enter_context(_upstream(place / "upstream", flags))
            _start_controllers(upstream)
            kubeconfigs["upstream"] = upstream.kubeconfig
        played = asyncio.run(_play_all(names, kubeconfigs, place))
    theirs = recorded if options.replay else played["upstream"]
    if options.record:
        kept = {name: t for name, t in {**recorded, **theirs}.items() if name in scenarios()}
        save_recorded(kept, pinned("kubernetes"))
        _say(f"{len(theirs)} scenarios recorded")
    found = _report(names, theirs, played["onejob"], time.monotonic() - started)
    return (
        1 if found or (not options.only and _useless_rules(names, theirs, played["onejob"])) else 0
    )


def _audit(policy: Path, log: Path) -> tuple[str, ...]:
    return f"--audit-policy-file={policy}", f"--audit-log-path={log}"


def _upstream(folder: Path, flags: tuple[str, ...]) -> Upstream:
    """Return a Kubernetes without admission plugins that add fields unknown to onejob to Pods."""
    return Upstream(
        folder,
        apiserver_flags=(
            *flags,
            f"--disable-admission-plugins={_SWITCHED_OFF}",
            "--allow-privileged=true",
        ),
    )


def _start_controllers(upstream: Upstream) -> None:
    upstream.start_controller_manager(
        _CONTROLLERS,
        "--kube-api-qps=1000",
        "--kube-api-burst=1000",
        "--concurrent-job-syncs=20",
        "--concurrent-cron-job-syncs=20",
        "--concurrent-ttl-after-finished-syncs=10",
    )


async def _play_all(
    names: list[str], kubeconfigs: dict[str, Path], place: Path
) -> dict[str, dict[str, LogFileImport]]:
    """Play the scenarios on all servers at once; their audit logs are in `place`."""
    played = await asyncio.gather(
        *(
            _play_side(side, names, over_https(kubeconfig, place / f"{side}.log"))
            for side, kubeconfig in kubeconfigs.items()
        )
    )
    return dict(zip(kubeconfigs, played, strict=True))


async def _play_side(
    side: str, names: list[str], connected: AbstractAsyncContextManager[Transport]
) -> dict[str, LogFileImport]:
    turns = asyncio.Semaphore(_AT_ONCE)
    transcripts: dict[str, LogFileImport] = {}

    async def one(name: str, transport: Transport) -> None:
        async with turns:
            try:
                transcripts[name] = await play(name, scenarios()[name], transport)
            except Exception as error:
                _say(f"{name} failed on {side}: {error!r}")

    async with connected as transport:
        await prepare(transport)
        await asyncio.gather(*(one(name, transport) for name in names))
    return transcripts


def _useless_rules(
    names: list[str], theirs: dict[str, LogFileImport], ours: dict[str, LogFileImport]
) -> bool:
    """Return whether some expected difference does not occur any more."""
    found = [
        difference
        for name in names
        if name in theirs and name in ours
        for difference in differences(name, theirs[name], ours[name])
    ]
    useless = [known for known in KNOWN if not any(map(known.covers, found))]
    for known in useless:
        _say(f"known_differences.py: nothing differs any more at {known.scenarios} {known.where}")
    return bool(useless)


def _report(
    names: list[str],
    theirs: dict[str, LogFileImport],
    ours: dict[str, LogFileImport],
    seconds: float,
) -> bool:
    """Print the differences. Return whether there is an unexpected one."""
    broken = [name for name in names if name not in theirs or name not in ours]
    found: list[Difference] = []
    for name in names:
        if name not in broken:
            found += differences(name, theirs[name], ours[name])
    unknown = [one for one in found if not any(known.covers(one) for known in KNOWN)]
    for difference in unknown:
        print(difference)
    _say(
        f"{len(names)} scenarios in {seconds:.0f} s: {len(unknown)} differences in "
        f"{len({one.scenario for one in unknown})} of them, "
        f"{len(found) - len(unknown)} wanted ones, {len(broken)} scenarios without a result"
    )
    return bool(unknown or broken)


def _say(text: str) -> None:
    print(f"differential: {text}", flush=True)


sys.exit(main())
