"""Job controller together with a garbage collector."""

import asyncio

from onejob.client.base import Client
from onejob.client.events import EventRecorder
from onejob.controllers.context import ControllerContext
from onejob.controllers.garbage import GarbageCollector
from onejob.informers.shared import SharedInformers
from tests.scripted_cluster import Cluster, RunningController


async def start_with_collector(cluster: Cluster, client: Client | None = None) -> RunningController:
    """Start the Job controller and a garbage collector."""
    running = await cluster.start_job_controller(client)
    informers = SharedInformers(cluster.client)
    recorder = EventRecorder(cluster.client, "garbage-collector-controller", cluster.clock)
    collector = GarbageCollector(
        ControllerContext(cluster.client, informers, recorder, cluster.clock, cluster.metrics),
        cluster.service.kinds,
    )
    await informers.start()

    async def collect() -> None:
        try:
            await collector.run()
        finally:
            # Informers that outlive the store fail, and asyncio logs that during a later test.
            await informers.stop()

    cluster.tasks.append(asyncio.create_task(collect()))
    return running
