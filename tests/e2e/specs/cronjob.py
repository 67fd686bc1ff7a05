"""CronJobs of upstream's specs, and waits for their states."""

from collections.abc import Callable
from typing import Any, Final

from tests.e2e.specs.api import CRONJOBS, JOBS, Api, Document, until
from tests.e2e.specs.job import BUSYBOX, finished

CRONJOB_SECONDS: Final = 300.0
EVERY_MINUTE: Final = "*/1 * * * ?"
SLEEP: Final = ("sleep", "300")


def a_cronjob(
    name: str, *command: str, schedule: str = EVERY_MINUTE, policy: str = "Allow", **spec: Any
) -> Document:
    """Return a CronJob as a typed Go client sends it.

    Keywords are of its spec; no command means the image's.
    """
    container: Document = {
        "name": "c",
        "image": BUSYBOX,
        "resources": {},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    if command:
        container["command"] = list(command)
    job = {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 1,
        "template": {
            "metadata": {"creationTimestamp": None},
            "spec": {
                "volumes": [{"name": "data", "emptyDir": {}}],
                "containers": [container],
                "restartPolicy": "OnFailure",
            },
        },
    }
    return {
        "kind": "CronJob",
        "apiVersion": "batch/v1",
        "metadata": {"name": name, "creationTimestamp": None},
        "spec": {
            "schedule": schedule,
            "concurrencyPolicy": policy,
            "jobTemplate": {"metadata": {"creationTimestamp": None}, "spec": job},
            **spec,
        },
        "status": {},
    }


async def active_jobs(api: Api, namespace: str, name: str) -> list[str]:
    """Return the names of the Jobs that the CronJob's status lists as active."""
    status: Document = (await api.get(CRONJOBS, namespace, name))["status"]
    return [reference["name"] for reference in status.get("active", ())]


async def until_active(api: Api, namespace: str, name: str, at_least: int) -> list[str]:
    async def look() -> list[str]:
        return await active_jobs(api, namespace, name)

    return await until(
        f"{at_least} active jobs",
        look,
        lambda names: len(names) >= at_least,
        seconds=CRONJOB_SECONDS,
    )


async def jobs_when(
    api: Api, namespace: str, what: str, holds: Callable[[list[Document]], object]
) -> list[Document]:
    async def look() -> list[Document]:
        return await api.items(JOBS, namespace)

    return await until(f"jobs: {what}", look, holds, seconds=CRONJOB_SECONDS)


def unfinished_jobs(jobs: list[Document]) -> list[Document]:
    return [job for job in jobs if not finished(job)]


def finished_jobs(jobs: list[Document]) -> list[Document]:
    return [job for job in jobs if finished(job)]


async def remove(api: Api, namespace: str, name: str) -> None:
    await api.delete(CRONJOBS, namespace, name, propagationPolicy="Background")
