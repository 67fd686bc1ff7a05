"""Permissions recorded from a real Kubernetes, checked on a server request by request.

A verb that is denied there gets a 403 here, and no other does.
`tests/differential/test_permissions.py` checks the same on the rules themselves.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from onejob.wire.kinds import BY_RESOURCE, MEASURED_KINDS, Kind
from tests.api.http.raw_requests import Requests, a_server
from tests.differential.permissions import BINDINGS, RESOURCES, STATUS_ROLE

TABLE = json.loads(
    (Path(__file__).parents[1] / "differential/recorded/permissions/table.json").read_text()
)
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/a"
METHODS = {
    "get": "GET", "list": "GET", "watch": "GET", "create": "POST", "update": "PUT",
    "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE",
}  # fmt: skip
ON_COLLECTIONS = ("list", "watch", "create", "deletecollection")
#: Nothing is executed, allowed or not: the request is invalid in a step after authorization.
BROKEN = b"{"
NOWHERE = "?resourceVersion=nonsense"


def kind_of(resource: str) -> Kind:
    measured = {kind.resource: kind for kind in MEASURED_KINDS}
    return measured.get(resource) or BY_RESOURCE[resource]


def request_of(resource: str, namespace: str, verb: str) -> tuple[str, str] | None:
    """Return method and path; None if no server has such a path."""
    named, _, subresource = resource.partition("/")
    kind = kind_of(named)
    found = kind.subresource(subresource) if subresource else None
    if verb not in (found.verbs if found is not None else kind.verbs):
        return None
    if kind.namespaced and not namespace and verb not in ("list", "watch"):
        return None
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else "/api/v1"
    place = f"/namespaces/{namespace}" if namespace else ""
    path = f"{root}{place}/{kind.plural}"
    if subresource:
        path += f"/absent/{subresource}"
    elif verb not in ON_COLLECTIONS:
        path += "/absent"
    if verb in ("list", "watch"):
        path += NOWHERE + ("&watch=true" if verb == "watch" else "")
    return METHODS[verb], path


def asked() -> Iterator[tuple[str, str, str, str]]:
    """Yield place and verb as in the table, method and path."""
    for resource, namespaced in RESOURCES.items():
        for namespace in ("a", "b", "") if namespaced else ("",):
            place = f"{resource} in {namespace or 'all'}" if namespaced else resource
            for verb in METHODS:
                if (request := request_of(resource, namespace, verb)) is not None:
                    yield place, verb, *request


ASKED = list(asked())


async def prepared(requests: Requests) -> None:
    for name in ("a", "b"):
        await requests.ok("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    await requests.ok("POST", f"{RBAC}/roles", STATUS_ROLE)
    for user, kind, name in BINDINGS:
        binding = {
            "metadata": {"name": user},
            "subjects": [{"kind": "User", "name": user}],
            "roleRef": {"kind": kind, "name": name},
        }
        await requests.ok("POST", f"{RBAC}/rolebindings", binding)


async def codes(session: aiohttp.ClientSession, user: str, groups: list[str]) -> list[int]:
    found = []
    for _, _, method, path in ASKED:
        headers = [("Impersonate-User", user), *(("Impersonate-Group", each) for each in groups)]
        data = None if method == "GET" else BROKEN
        typed = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers.append(("Content-Type", typed))
        async with session.request(method, path, data=data, headers=headers) as answer:
            await answer.read()
            found.append(answer.status)
    return found


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    folder = tmp_path_factory.mktemp("table")

    async def ask_all() -> dict[str, list[int]]:
        async with a_server(folder) as requests, asyncio.timeout(300):
            await prepared(requests)
            return {
                name: await codes(requests.session, user, groups)
                for name, (user, groups) in TABLE["identities"].items()
            }

    return asyncio.run(ask_all())


def expected(identity: str) -> set[tuple[str, str]]:
    allowed: dict[str, Any] = TABLE["allowed"][identity]
    found = {(place, verb) for place, verbs in allowed.items() for verb in verbs}
    if identity == "job controller":
        # It patches where Kubernetes' own updates.
        found |= {(f"jobs.batch/status in {place}", "patch") for place in ("a", "b", "all")}
    return found


@pytest.mark.parametrize("identity", sorted(TABLE["identities"]))
def test_permissions_over_http(answers: dict[str, list[int]], identity: str) -> None:
    allowed = expected(identity)
    wrong = [
        (place, verb, code)
        for (place, verb, *_), code in zip(ASKED, answers[identity], strict=True)
        if (code != 403) != ((place, verb) in allowed)
    ]
    assert wrong == []


def test_no_answer_is_an_error_of_the_server_or_a_success(answers: dict[str, list[int]]) -> None:
    """So an allowed request was refused for its defect, after authorization."""
    seen = {code for found in answers.values() for code in found}
    assert seen <= {400, 403, 404, 415, 422}
    assert len(ASKED) * len(answers) > 3000
