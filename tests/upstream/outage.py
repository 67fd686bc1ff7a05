"""Job on a real API server that is killed and restarted, behind a faulty network.

python -m tests.upstream.outage [completions] [seed]
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from random import Random

from tests.upstream.cluster import Upstream
from tests.upstream.jobs import a_real_cluster, client_of, create_job, judge, read
from tests.upstream.kubelet import Kubelet
from tests.upstream.replicas import QUICK_ELECTION, Replica


class BadNetwork:
    """TCP proxy that can delay data, cut all connections, or drop responses."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.delay = 0.0
        #: Responses are dropped, while requests still arrive.
        self.one_way = False

    async def start(self) -> int:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def cut(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, there}
        self._writers |= both
        try:
            await asyncio.gather(
                self._pump(reader, there, back=False), self._pump(there_reader, writer, back=True)
            )
        finally:
            self._writers -= both
            for end in both:
                end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if self.delay:
                    await asyncio.sleep(self.delay)
                if back and self.one_way:
                    continue
                writer.write(data)
                await writer.drain()
        except OSError:
            # The other direction ends with this one.
            pass
        finally:
            writer.transport.abort()


def through(kubeconfig: Path, port: int) -> Path:
    """Return the kubeconfig of the same server behind a proxy."""
    config = json.loads(kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    path = kubeconfig.with_name("kubeconfig-proxied")
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path


async def run(cluster: Upstream, completions: int, seed: int) -> list[str]:
    rng = Random(seed)
    network = BadNetwork("127.0.0.1", int(cluster.url.rpartition(":")[2]))
    proxied = through(cluster.kubeconfig, await network.start())
    client = client_of(cluster)
    kubelet = Kubelet(client, seconds=0.3, workers=10)
    node = asyncio.create_task(kubelet.run())
    log = cluster.folder / "replicas.log"
    options = ("--qps=0", *QUICK_ELECTION)
    replicas = [await asyncio.to_thread(Replica, proxied, log, *options) for _ in range(2)]
    started = time.monotonic()
    key = await create_job(
        client, "outage", completions=completions, parallelism=40, completionMode="Indexed"
    )
    counts = {"cut": 0, "one way": 0, "delay": 0, "restart": 0}
    try:
        while (job := await read(client, key)) is None or not job.finished:
            await asyncio.sleep(rng.uniform(0.5, 2.0))
            what = rng.choice(list(counts))
            counts[what] += 1
            match what:
                case "cut":
                    network.cut()
                case "one way":
                    # Requests are carried out, but their responses are lost.
                    network.one_way = True
                    await asyncio.sleep(rng.uniform(0.1, 2.0))
                    network.cut()
                    network.one_way = False
                case "delay":
                    network.delay = rng.choice((0.0, 0.05, 0.3))
                case _:
                    await asyncio.to_thread(cluster.restart_apiserver)
            done = job.status.succeeded if job is not None else "?"
            print(f"{time.monotonic() - started:6.1f} s  {what:8} succeeded {done}", flush=True)
        verdict = await judge(client, job, kubelet.ledger)
        print(f"{counts} in {time.monotonic() - started:.0f} s: {verdict.summary}")
        return verdict.wrong
    finally:
        for replica in replicas:
            await asyncio.to_thread(replica.stop)
        network.stop()
        node.cancel()
        await asyncio.gather(node, return_exceptions=True)
        await client.close()


def main(arguments: list[str]) -> int:
    why = Upstream.missing()
    if why:
        print(f"skipped: {why}")
        return 0
    completions, seed = (*map(int, arguments), *(1000, 1)[len(arguments) :])
    with a_real_cluster() as cluster:
        wrong = asyncio.run(run(cluster, completions, seed))
    for line in wrong:
        print(f"wrong: {line}")
    print("failed" if wrong else "ok: counts are exact, no index ran twice at once")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
