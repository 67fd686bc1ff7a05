"""Priority of Pods from PriorityClasses."""

from pathlib import Path
from typing import Any

import msgspec

from onejob.api.service import Service
from onejob.client.base import Create
from onejob.client.local import LocalClient
from onejob.wire.errors import Forbidden, Invalid
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import DeleteOptions, User, WriteOptions
from tests.api.service_support import PERSON, POD, Doc, a_pod, create, failure, read, served

CLASS = BY_RESOURCE["priorityclasses.scheduling.k8s.io"]


def a_class(name: str, value: int, **more: Any) -> Doc:
    return {"metadata": {"name": name}, "value": value, **more}


def pod_of(name: str, **spec: Any) -> Doc:
    pod = a_pod(name)
    pod["spec"].update(spec)
    return pod


def priority_of(pod: Doc) -> tuple[Any, ...]:
    return tuple(
        pod["spec"].get(field) for field in ("priorityClassName", "priority", "preemptionPolicy")
    )


def test_a_pod_gets_the_priority_of_its_class(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_class("high", 100, preemptionPolicy="Never"), CLASS, "")
        pod = await create(service, pod_of("p", priorityClassName="high"), POD)
        assert priority_of(pod) == ("high", 100, "Never")
        pod = await create(service, pod_of("q", priorityClassName="high", priority=100), POD)
        assert priority_of(pod) == ("high", 100, "Never")

    served(tmp_path, test)


def test_pods_without_a_class_get_that_of_the_default(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        assert priority_of(await create(service, a_pod("p"), POD)) == (None, None, None)
        await create(service, a_class("usual", 7, globalDefault=True), CLASS, "")
        pod = await create(service, a_pod("q"), POD)
        assert priority_of(pod) == ("usual", 7, "PreemptLowerPriority")
        await service.delete(CLASS, "", "usual", DeleteOptions(User("somebody")))
        assert priority_of(await create(service, a_pod("r"), POD)) == (None, None, None)

    served(tmp_path, test)


def test_the_systems_classes_need_not_be_created(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        pod = await create(service, pod_of("p", priorityClassName="system-node-critical"), POD)
        assert pod["spec"]["priority"] == 2_000_001_000
        error = await failure(create(service, a_class("system-mine", 1), CLASS, ""))
        assert isinstance(error, Invalid)
        assert (
            "priority class names with 'system-' prefix are reserved for system use only. error: "
            "system-mine is not a known system priority class" in error.message
        )
        known = a_class("system-cluster-critical", 2_000_000_000)
        await create(service, known, CLASS, "")

    served(tmp_path, test)


def test_priority_differing_from_its_class_is_rejected(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_class("high", 100), CLASS, "")
        refused: dict[str, Doc] = {
            "no PriorityClass with name gone was found": {"priorityClassName": "gone"},
            "the integer value of priority (5) must not be provided in pod spec; priority "
            "admission controller computed 100 from the given PriorityClass name": {
                "priorityClassName": "high",
                "priority": 5,
            },
            "the integer value of priority (5) must not be provided in pod spec; priority "
            "admission controller computed 0 from the given PriorityClass name": {"priority": 5},
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; "
            "priority admission controller computed PreemptLowerPriority from the given "
            "PriorityClass name": {"priorityClassName": "high", "preemptionPolicy": "Never"},
        }
        for text, spec in refused.items():
            error = await failure(create(service, pod_of("p", **spec), POD))
            assert isinstance(error, Forbidden)
            assert error.message == f'pods "p" is forbidden: {text}'

    served(tmp_path, test)


def test_there_is_one_default_class(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_class("usual", 7, globalDefault=True), CLASS, "")
        await create(service, a_class("other", 8), CLASS, "")
        text = "PriorityClass usual is already marked as default. Only one default can exist"
        error = await failure(create(service, a_class("a", 1, globalDefault=True), CLASS, ""))
        assert isinstance(error, Forbidden)
        assert text in error.message
        mark = {"globalDefault": True}
        error = await failure(service.patch(CLASS, "", "other", "merge", mark, PERSON))
        assert isinstance(error, Forbidden)
        assert text in error.message
        note = {"globalDefault": True, "description": "still the default"}
        await service.patch(CLASS, "", "usual", "merge", note, PERSON)

    served(tmp_path, test)


def test_a_pod_keeps_its_priority_when_an_update_leaves_it_out(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        await create(service, a_class("high", 100), CLASS, "")
        pod = await create(service, pod_of("p", priorityClassName="high"), POD)
        del pod["spec"]["priority"], pod["spec"]["preemptionPolicy"]
        pod["spec"]["activeDeadlineSeconds"] = 60
        changed = await service.update(POD, "default", "p", pod, PERSON)
        assert priority_of(read(changed.document)) == ("high", 100, "PreemptLowerPriority")

    served(tmp_path, test)


def test_pods_of_our_own_controllers_follow_a_class_that_changes(tmp_path: Path) -> None:
    """Equal Pods are created from a cached first one, except for their priority."""

    async def test(service: Service) -> None:
        client = LocalClient(service, WriteOptions(User("jobs"), trusted=True))
        pod = a_pod()
        del pod["metadata"]["name"]
        pod["metadata"]["generateName"] = "p-"
        pod["spec"]["priorityClassName"] = "mine"

        async def created(document: Doc) -> Any:
            written = await client.write(Create("pods", "default", msgspec.json.encode(document)))
            return read(written.document)["spec"].get("priority")

        for value in (1, 2):
            await create(service, a_class("mine", value), CLASS, "")
            assert [await created(pod), await created(pod)] == [value, value]
            await service.delete(CLASS, "", "mine", DeleteOptions(User("somebody")))
        del pod["spec"]["priorityClassName"]
        assert [await created(pod), await created(pod)] == [None, None]
        await create(service, a_class("usual", 7, globalDefault=True), CLASS, "")
        assert [await created(pod), await created(pod)] == [7, 7]

    served(tmp_path, test)
