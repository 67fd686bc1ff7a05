"""Admission of exec, attach and portforward: see also the scenario `webhooks.sessions`."""

from pathlib import Path

import pytest

from onejob.api.http.routing import ResourcePath
from onejob.api.sessions.admitting import admitted_query
from onejob.wire.errors import BadRequest
from onejob.wire.requests import User
from tests.api.service_support import POD
from tests.webhooks.support import Doc, a_calling_service, a_hook, a_webhook, configure, patch

_USER = User("bob")
_RULE = {"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["*/*"]}


async def test_parameters_may_be_mutated(tmp_path: Path) -> None:
    changes = {
        "exec": patch(
            {"op": "replace", "path": "/command/0", "value": "false"},
            {"op": "add", "path": "/container", "value": "side"},
            {"op": "remove", "path": "/tty"},
        ),
        "portforward": patch({"op": "add", "path": "/ports/-", "value": 81}),
        "attach": patch({"op": "add", "path": "/stdin", "value": "much"}),
    }

    def respond(request: Doc) -> Doc:
        return changes[request["subResource"]]

    async with a_hook(tmp_path, respond) as hook, a_calling_service(tmp_path) as service:
        given = {"command": ["true", "x"], "stdout": ["1"], "tty": ["true"], "ports": ["80"]}

        async def admitted(subresource: str) -> object:
            target = ResourcePath(POD, "default", "p", subresource)
            return await admitted_query(service, target, given, _USER)

        assert await admitted("exec") is given
        await configure(service, a_webhook(hook, rules=[_RULE]), mutating=True)
        assert await admitted("exec") == {
            "command": ["false", "x"],
            "container": ["side"],
            "stdout": ["true"],
        }
        assert await admitted("portforward") == {"ports": ["80", "81"]}
        with pytest.raises(BadRequest, match="invalid PodAttachOptions after admission"):
            await admitted("attach")
        assert hook.reviews[0]["request"]["userInfo"] == {"username": "bob"}
        assert hook.reviews[0]["request"]["options"] is None
