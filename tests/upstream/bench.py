"""Benchmark of onejob's controller and kube-controller-manager on one real API server.

    python -m tests.upstream.bench [rounds]

Both have no rate limit of their own; a fake kubelet ends each Pod as soon as it exists. Rounds
alternate, because the machine may have other load. Requests are those of the controllers as the API
server counts them: all writes except the kubelet's. The limit is the capacity of the API server at
that moment: the three writes that any Pod of a Job takes (create, end, remove the finalizer), as
many at once as the parallelism allows, without a controller.
"""

import asyncio
import os
import re
import sys
import time
from dataclasses import dataclass
from statistics import median

import msgspec

from onejob.client.base import Create, Patch
from onejob.client.http import HttpClient
from onejob.objects.meta import PODS
from onejob.objects.pod import read_pod
from tests.upstream.building import CONTROLLER_MANAGER
from tests.upstream.cluster import Upstream
from tests.upstream.jobs import MANAGER, a_real_cluster, client_of, create_job, until_finished
from tests.upstream.kubelet import NOT_FOR_KUBELET, Kubelet, ended
from tests.upstream.replicas import Replica

#: Parallelism and number of Pods.
SIZES = ((10, 200), (100, 600), (1000, 1000))
#: Concurrent requests of a controller.
_MAX_CONCURRENT_REQUESTS = 32
#: Not the one that Job controllers track: they would act, too.
_FINALIZER = "bench.onejob.dev/counted"
_COUNTED = re.compile(r"^apiserver_request_total\{(.*)\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Figures:
    pods_per_second: float
    requests_per_pod: float
    cpu_ms_per_pod: float


async def controller_requests(client: HttpClient) -> float:
    """Return the number of writes to Pods, Jobs and events, without bindings and Pod statuses."""
    text = (await client.get_raw("/metrics")).decode()
    total = 0.0
    for labels, value in _COUNTED.findall(text):
        found = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if found["resource"] not in ("pods", "jobs", "events"):
            continue
        if found["verb"] not in ("POST", "PUT", "PATCH", "DELETE"):
            continue
        if found["resource"] == "pods" and found["subresource"]:
            continue
        total += float(value)
    return total


def cpu_seconds(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(
    client: HttpClient, name: str, manager: str, pid: int, parallelism: int, completions: int
) -> Figures:
    requests, cpu, started = await controller_requests(client), cpu_seconds(pid), time.monotonic()
    key = await create_job(
        client, name, manager=manager, completions=completions, parallelism=parallelism
    )
    job = await until_finished(client, key, within=300, every=0.1)
    seconds = time.monotonic() - started
    if job.status.succeeded != completions:
        raise AssertionError(f"{name}: {job.status.succeeded} of {completions} are counted")
    # The Job itself was created by us.
    used = await controller_requests(client) - requests - 1
    return Figures(
        completions / seconds, used / completions, (cpu_seconds(pid) - cpu) * 1000 / completions
    )


async def limit(client: HttpClient, name: str, parallelism: int, completions: int) -> float:
    """Return the Pods per second that the API server can handle."""
    document = msgspec.json.encode(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": f"{name}-",
                "finalizers": [_FINALIZER],
                "labels": {NOT_FOR_KUBELET: ""},
            },
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]},
        }
    )
    released = msgspec.json.encode(
        {"metadata": {"$deleteFromPrimitiveList/finalizers": [_FINALIZER]}}
    )
    left = iter(range(completions))

    async def lives() -> None:
        for _ in left:
            created = await client.write(Create(PODS, "default", document))
            key = read_pod(created.document).key
            await client.write(Patch(key, ended(0), "merge", "status"))
            await client.write(Patch(key, released))

    started = time.monotonic()
    await asyncio.gather(*(lives() for _ in range(min(parallelism, _MAX_CONCURRENT_REQUESTS))))
    return completions / (time.monotonic() - started)


async def run(cluster: Upstream, rounds: int) -> None:
    unlimited = ("--kube-api-qps=100000", "--kube-api-burst=100000")
    cluster.start_controller_manager("job-controller", *unlimited)
    replica = Replica(cluster.kubeconfig, cluster.folder / "replica.log", "--qps=0")
    client = client_of(cluster)
    node = asyncio.create_task(Kubelet(client, bind=False, workers=32).run())
    sides = {
        "onejob": (MANAGER, replica.pid),
        "upstream": ("", cluster.pid(CONTROLLER_MANAGER.name)),
    }
    print(f"{'parallelism':>11}  {'':8}  pods/s  requests/pod  CPU ms/pod", flush=True)
    try:
        for parallelism, completions in SIZES:
            found: dict[str, list[Figures]] = {side: [] for side in sides}
            limits: list[float] = []
            for number in range(rounds):
                for side, (manager, pid) in sides.items():
                    name = f"{side}-{parallelism}-{number}"
                    found[side].append(
                        await measure(client, name, manager, pid, parallelism, completions)
                    )
                limits.append(
                    await limit(client, f"limit-{parallelism}-{number}", parallelism, completions)
                )
            for side, figures in found.items():
                print(
                    f"{parallelism:>11}  {side:8}  {middle(figures, 'pods_per_second'):6.1f}"
                    f"  {middle(figures, 'requests_per_pod'):12.2f}"
                    f"  {middle(figures, 'cpu_ms_per_pod'):10.2f}",
                    flush=True,
                )
            ours, theirs = (middle(found[side], "pods_per_second") for side in sides)
            print(f"{parallelism:>11}  {'limit':8}  {median(limits):6.1f}", flush=True)
            print(f"{parallelism:>11}  {ours / theirs:.1f} times", flush=True)
    finally:
        replica.stop()
        node.cancel()
        await asyncio.gather(node, return_exceptions=True)
        await client.close()


def middle(figures: list[Figures], name: str) -> float:
    return median(float(getattr(one, name)) for one in figures)


def main(arguments: list[str]) -> int:
    why = Upstream.missing()
    if why:
        print(f"skipped: {why}")
        return 0
    with a_real_cluster() as cluster:
        asyncio.run(run(cluster, int(arguments[0]) if arguments else 3))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
