"""CustomResourceDefinitions found in the store at start."""

from pathlib import Path

import pytest

from onejob.api.service import Service
from onejob.wire.kinds import BY_RESOURCE
from tests.api.crd.build import a_definition, a_version
from tests.api.service_support import PERSON, create, failure, served

DEFINITION = BY_RESOURCE["customresourcedefinitions.apiextensions.k8s.io"]
CLASS = BY_RESOURCE["priorityclasses.scheduling.k8s.io"]


def test_a_definition_of_a_name_that_the_server_has_now_does_not_stop_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = {"plural": "priorityclasses", "kind": "PriorityClass"}
    taken = a_definition(
        a_version(name="v2"), group="scheduling.k8s.io", scope="Cluster", names=names
    )
    taken["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}

    async def test(service: Service) -> None:
        for definition in (taken, a_definition()):
            stored = await create(service, definition, DEFINITION, "")
            stored["status"]["acceptedNames"] = stored["spec"]["names"]
            stored["status"]["conditions"] = [{"type": "Established", "status": "True"}]
            name = stored["metadata"]["name"]
            await service.update(DEFINITION, "", name, stored, PERSON, subresource="status")
        service.install_definitions()
        assert [record.getMessage() for record in caplog.records] == [
            "priorityclasses.scheduling.k8s.io is not served any more: the server has "
            "PriorityClass of scheduling.k8s.io itself"
        ]
        # All others are served, and the server's own kind has its own rules.
        assert "widgets.example.com" in service.kinds.by_resource
        too_high = {"metadata": {"name": "a"}, "value": 1_000_000_001}
        assert (
            "user defined priority" in (await failure(create(service, too_high, CLASS, ""))).message
        )

    served(tmp_path, test)
