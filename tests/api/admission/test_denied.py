"""Metric of admission refusals, by the plugin that refused."""

from pathlib import Path

from onejob.api.service import Service
from onejob.wire.errors import Forbidden
from onejob.wire.kinds import BY_RESOURCE
from tests.api.service_support import POD, a_pod, create, failure, served

_NAMESPACE = BY_RESOURCE["namespaces"]
_QUOTA = BY_RESOURCE["resourcequotas"]
_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def test_rejections_are_counted_by_plugin(tmp_path: Path) -> None:
    async def test(service: Service) -> None:
        strict = {"metadata": {"name": "strict", "labels": _RESTRICTED}}
        await create(service, strict, _NAMESPACE, "")
        await create(service, {"metadata": {"name": "small"}}, _NAMESPACE, "")
        quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
        await create(service, quota, _QUOTA, "small")
        unknown = a_pod("c")
        unknown["spec"]["priorityClassName"] = "missing"
        assert isinstance(await failure(create(service, a_pod("a"), POD, "strict")), Forbidden)
        assert isinstance(await failure(create(service, a_pod("b"), POD, "small")), Forbidden)
        assert isinstance(await failure(create(service, unknown, POD)), Forbidden)
        assert {plugin for plugin, count in service.admission.denied.items() if count == 1} == {
            "PodSecurity",
            "ResourceQuota",
            "Priority",
        }

    served(tmp_path, test)
