"""Service-account tokens in real containers, at the path that client libraries read."""

import asyncio
import base64
import json
from pathlib import Path

import msgspec

from onejob.client.base import Create
from onejob.clock import SystemClock
from onejob.control_plane import ControlPlane, Dependencies, Front, Settings
from onejob.node.options import NodeOptions
from onejob.node.podman.engine_settings import PodmanSettings
from onejob.node.podman.runtime import PodmanRuntime
from onejob.node.runtime import NodeContext, Runtime
from onejob.objects.meta import Key
from onejob.planning.pod.account_volume import ACCOUNT_FOLDER
from tests.node.podman.support import ENGINE, NEEDS_PODMAN, OPTIONS, script
from tests.node.support import Node, with_spec

pytestmark = NEEDS_PODMAN

CERTIFICATE = "a certificate"
ROOT_CA = Key("configmaps", "default", "kube-root-ca.crt")


async def test_a_container_finds_its_token_and_cannot_change_it(place: Path) -> None:
    (place / "pki").mkdir(mode=0o700)
    options = NodeOptions(engine=ENGINE, engine_options=OPTIONS, pods_end_with_server=True)
    text = (
        f"cd {ACCOUNT_FOLDER}; cat token; echo; cat ca.crt; echo; cat namespace; echo; "
        "echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; "
        "touch token 2>/dev/null && echo changed || echo kept; "
        "id -u"
    )

    def runtime(context: NodeContext) -> Runtime:
        return PodmanRuntime(place, SystemClock(), PodmanSettings(context, options))

    settings = Settings(place, options, with_access=True)
    plane = await ControlPlane.start(
        settings,
        Dependencies(runtime=runtime),
        Front(root_ca=CERTIFICATE, api_url="https://127.0.0.1:1"),
    )
    try:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "worker"}}
        body = msgspec.json.encode(account)
        async with asyncio.timeout(60):
            while plane.store.get(ROOT_CA) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            await plane.client.write(Create("serviceaccounts", "default", body))
            node = Node(plane.client, plane.node)
            secured = {"runAsUser": 1234}
            spec = {"serviceAccountName": "worker", "securityContext": secured}
            ended = await node.run(with_spec(script(text), **spec))
            output = (await node.output("p")).splitlines()
        token, certificate, namespace, server, kept, user = output
        assert (certificate, namespace, kept) == (CERTIFICATE, "default", "kept")
        assert (server, user) == ("127.0.0.1:1", "1234")
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        bound = claims["kubernetes.io"]
        assert bound["serviceaccount"]["name"] == "worker"
        assert bound["pod"] == {"name": "p", "uid": ended["metadata"]["uid"]}
    finally:
        await plane.stop()
