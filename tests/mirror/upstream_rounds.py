"""`make upstream-mirror`: mirror rounds with a real Kubernetes as the remote side.

Its API server is the one that is killed; Pods are run by a fake kubelet, whose ledger records the
Pods that really ran.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import msgspec

from onejob.planning.mirror import names
from onejob.planning.mirror.annotations import CopyLocation
from tests.e2e.serving import Server
from tests.mirror.pairs import a_job, condition
from tests.mirror.rounds import COMPLETIONS, Document, World, options_of, play_all
from tests.upstream.cluster import Upstream
from tests.upstream.jobs import a_real_cluster, client_of
from tests.upstream.kubelet import Kubelet


class ApiServerOnly:
    """The remote side, whose API server is killed and restarted."""

    def __init__(self, cluster: Upstream) -> None:
        self._cluster = cluster

    @property
    def kubeconfig(self) -> Path:
        return self._cluster.kubeconfig

    def kill(self) -> None:
        self._cluster.kill_apiserver()

    def start(self) -> None:
        self._cluster.start_apiserver()


class PodsThatRan:
    """Check that all Pods that ran belonged to one copy, and each index ran once.

    kube-controller-manager gives Pods generated names. If the response to a create is lost because
    the API server dies, it may create a second one for the same index, of the same Job. That is
    counted, and not taken for a fault of the mirror.
    """

    def __init__(self, kubelet: Kubelet) -> None:
        self._ledger = kubelet.ledger
        self._known: set[tuple[str, str]] = set()
        self.doubled_by_kubernetes = 0

    def __call__(self, world: World, job: Document, number: int) -> list[str]:
        text = job["metadata"]["annotations"][names.RECORD]
        uid = msgspec.json.decode(text, type=CopyLocation).uid
        new = self._ledger.successes.keys() - self._known
        self._known |= new
        others = {owner for owner, _ in new} - {uid}
        problems = [f"copies ran that are not on record: {others}"] if others else []
        server_died = any("killed" in fault and "there" in fault for fault in world.faults)
        server_died |= "both killed" in world.faults
        for index in range(COMPLETIONS):
            count = self._ledger.successes.get((uid, str(index)), 0)
            if count > 1 and server_died:
                self.doubled_by_kubernetes += 1
            elif count != 1:
                problems.append(f"index {index} succeeded {count} times")
        return problems


def refuses_what_is_dropped(here: Server, cluster: Upstream) -> str:
    """Check that a field unknown to Kubernetes is refused; return the message."""
    target = ("mirror", "add", "direct", "--kubeconfig", str(cluster.kubeconfig))
    command = [*here.command, *target, "--server-kubeconfig", str(here.kubeconfig)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    job = a_job("dropped", target="direct", backoffSeconds=1)
    here.kubectl("create", "--validate=false", "-f", "-", stdin=json.dumps(job))
    here.kubectl("wait", "--for=condition=MirrorReady=False", "job/dropped", "--timeout=60s")
    found = json.loads(here.kubectl("get", "job", "dropped", "-o", "json"))
    here.kubectl("delete", "job", "dropped")
    assert condition(found)["reason"] == "FieldsNotKnown", found
    return str(condition(found)["message"])


async def run(cluster: Upstream, rounds: int, seed: int) -> int:
    client = client_of(cluster)
    kubelet = Kubelet(client, seconds=0.3)
    running = asyncio.create_task(kubelet.run())
    folder = cluster.folder.parent
    here = Server(folder / "here")
    here.data_dir.mkdir(mode=0o700)
    await asyncio.to_thread(here.start)
    try:
        print("what it drops is told before anything runs: ", end="", flush=True)
        print(await asyncio.to_thread(refuses_what_is_dropped, here, cluster))
        there = ApiServerOnly(cluster)
        ledger = PodsThatRan(kubelet)
        code = await play_all(here, there, ledger, rounds, seed, folder)
        doubled = ledger.doubled_by_kubernetes
        print(f"indexes that Kubernetes itself ran twice, its API server being killed: {doubled}")
        return code
    finally:
        await asyncio.to_thread(here.stop)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await client.close()


def main() -> int:
    options = options_of("python -m tests.mirror.upstream_rounds", __doc__)
    why = Upstream.missing()
    if why:
        print(f"skipped: {why}")
        return 0
    with a_real_cluster() as cluster:
        # The fake node does not exist, so its Pods would soon be collected.
        cluster.start_controller_manager("*,-pod-garbage-collector-controller")
        return asyncio.run(run(cluster, options.rounds, options.seed))


if __name__ == "__main__":
    sys.exit(main())
