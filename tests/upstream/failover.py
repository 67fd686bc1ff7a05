"""Two replicas on a real API server; the leader is killed -9 at random until the Job is done.

python -m tests.upstream.failover [kills] [completions] [seed]
"""

import asyncio
import sys
import time
from random import Random

from onejob.objects.pod import Pod
from tests.upstream.cluster import Upstream
from tests.upstream.jobs import a_real_cluster, client_of, create_job, judge, read
from tests.upstream.kubelet import Kubelet
from tests.upstream.replicas import QUICK_ELECTION, Replica


async def run(cluster: Upstream, kills: int, completions: int, seed: int) -> list[str]:
    rng = Random(seed)
    client = client_of(cluster)
    log = cluster.folder / "replicas.log"

    def start() -> Replica:
        return Replica(cluster.kubeconfig, log, "--qps=0", *QUICK_ELECTION)

    def one_in_twenty_fails(pod: Pod) -> int:
        return int(int(pod.metadata.uid[:4], 16) % 20 == 0)

    # Twenty Pods a second, so that the Job lasts for all kills.
    kubelet = Kubelet(client, exit_code=one_in_twenty_fails, seconds=0.5, workers=10)
    node = asyncio.create_task(kubelet.run())
    replicas = [start(), start()]
    started = time.monotonic()
    key = await create_job(
        client, "failover", completions=completions, parallelism=40,
        completionMode="Indexed", backoffLimit=10_000,
    )  # fmt: skip
    killed = 0
    before = 0
    try:
        while (job := await read(client, key)) is None or not job.finished:
            done = job.status.succeeded if job is not None else 0
            leader = next((n for n, r in enumerate(replicas) if r.leading), None)
            if leader is None or (done == before and killed):
                # There is no leader yet, or not for long enough to have done anything.
                await asyncio.sleep(0.2)
                continue
            await asyncio.sleep(rng.uniform(0.0, 2.5))
            left = completions - done
            if killed >= kills and left > completions // 10:
                # Enough kills: the rest runs undisturbed.
                await asyncio.sleep(1)
                continue
            replicas[leader].kill()
            killed += 1
            before = done
            replicas[leader] = start()
            print(
                f"{time.monotonic() - started:6.1f} s  kill {killed:3}  succeeded {done}",
                flush=True,
            )
        verdict = await judge(client, job, kubelet.ledger)
        wrong = list(verdict.wrong)
        if killed < kills:
            wrong.append(f"only {killed} kills")
        print(f"{killed} kills in {time.monotonic() - started:.0f} s: {verdict.summary}")
        return wrong
    finally:
        for replica in replicas:
            replica.stop()
        node.cancel()
        await asyncio.gather(node, return_exceptions=True)
        await client.close()


def main(arguments: list[str]) -> int:
    why = Upstream.missing()
    if why:
        print(f"skipped: {why}")
        return 0
    kills, completions, seed = (*map(int, arguments), *(30, 2000, 1)[len(arguments) :])
    with a_real_cluster() as cluster:
        wrong = asyncio.run(run(cluster, kills, completions, seed))
    for line in wrong:
        print(f"wrong: {line}")
    print("failed" if wrong else "ok: counts are exact, no index ran twice at once")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
