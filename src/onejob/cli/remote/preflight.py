"""Preflight of a remote run: portability, permissions and a server-side dry run, all at once."""

import asyncio
from collections.abc import Sequence

import msgspec

from onejob.cli.errors import EXIT_USAGE, CommandError
from onejob.cli.manifests.loading import Problem, placed
from onejob.cli.remote.planning import RemoteObject, same_content
from onejob.client.answers import Unreachable, Untrusted
from onejob.client.base import Create
from onejob.client.http import HttpClient
from onejob.client.requests import write_request
from onejob.cluster.permissions import AccessReview
from onejob.objects.meta import JOBS, NAMESPACES, Key
from onejob.wire.errors import AlreadyExists, ApiError, NotFound, Unauthorized

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_MAX_CONCURRENT = 16


class PreflightFailed(CommandError):
    """Problems of a remote run, one line each; nothing was created."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(problems[0], exit_code=EXIT_USAGE)
        self._problems = list(dict.fromkeys(problems))

    @property
    def lines(self) -> list[str]:
        return self._problems


async def check(
    client: HttpClient,
    objects: Sequence[RemoteObject],
    problems: Sequence[Problem],
    needs: Sequence[AccessReview],
) -> list[RemoteObject]:
    """Return the objects to create: those that exist with the same content are left out.

    `problems` are those found in the manifests; manifests that have some are not sent. Raises
    PreflightFailed with these and all others.
    """
    found = [str(problem) for problem in problems]
    bad = {(problem.source, problem.document) for problem in problems}
    sent = [item for item in objects if (item.manifest.source, item.manifest.number) not in bad]
    created = {item.manifest.name for item in objects if item.planned.resource == NAMESPACES}
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    try:
        allowed = await asyncio.gather(*(_is_allowed(client, need, limit) for need in needs))
        # A namespace that the run creates does not exist yet, so nothing in it can be tried.
        sent = [
            item
            for item in sent
            if item.planned.namespace not in created or await _namespace_exists(client, item)
        ]
        tried = await asyncio.gather(*(_dry_run(client, item, limit) for item in sent))
    except Untrusted as error:
        raise CommandError(error.message, "check certificate-authority in the kubeconfig") from None
    except Unauthorized as error:
        raise CommandError(
            f"the server rejected the credentials: {error.message}", "renew them in the kubeconfig"
        ) from None
    except Unreachable as error:
        raise CommandError(error.message, "check that the server is running") from None
    missing = [need for need, is_allowed in zip(needs, allowed, strict=True) if not is_allowed]
    found += [f"permission missing: {need}" for need in missing]
    reused = set()
    for item, errors in tried:
        if errors is None:
            reused.add(id(item))
        else:
            found += errors
    if found:
        raise PreflightFailed(found)
    return [item for item in objects if id(item) not in reused]


async def _namespace_exists(client: HttpClient, item: RemoteObject) -> bool:
    try:
        await client.get(Key(NAMESPACES, "", item.planned.namespace))
    except (Unreachable, Unauthorized):
        raise
    except ApiError:
        return False
    return True


async def _is_allowed(client: HttpClient, need: AccessReview, limit: asyncio.Semaphore) -> bool:
    async with limit:
        answer = msgspec.json.decode(
            await client.post_raw(_REVIEWS, msgspec.json.encode(need.review()))
        )
    return bool(answer.get("status", {}).get("allowed"))


async def _dry_run(
    client: HttpClient, item: RemoteObject, limit: asyncio.Semaphore
) -> tuple[RemoteObject, list[str] | None]:
    """Return the reasons why the server rejects the object; None if it exists already."""
    planned, manifest = item.planned, item.manifest
    request = write_request(
        Create(planned.resource, planned.namespace, msgspec.json.encode(planned.document))
    )
    target = f"{request.target}&dryRun=All&fieldValidation=Strict"
    async with limit:
        try:
            await client.post_raw(target, request.body)
        except AlreadyExists as error:
            if planned.resource != JOBS and await _is_same(client, item):
                return item, None
            text = f"{error.message} (delete it, or use another name or generateName)"
            return item, [placed(text, manifest.source, manifest.number)]
        except (Unreachable, Unauthorized):
            raise
        except ApiError as error:
            return item, _texts(item, error)
    return item, []


async def _is_same(client: HttpClient, item: RemoteObject) -> bool:
    planned = item.planned
    try:
        found = await client.get(Key(planned.resource, planned.namespace, item.manifest.name))
    except NotFound:
        return False
    return planned.resource == NAMESPACES or same_content(
        planned.document, msgspec.json.decode(found)
    )


def _texts(item: RemoteObject, error: ApiError) -> list[str]:
    manifest = item.manifest
    causes = [cause for cause in error.details.get("causes") or () if cause.get("field")]
    if causes:
        return [
            str(manifest.problem(str(cause["field"]), str(cause.get("message", ""))))
            for cause in causes
        ]
    return [placed(" ".join(error.message.split()), manifest.source, manifest.number)]
