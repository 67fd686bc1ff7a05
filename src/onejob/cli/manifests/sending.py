"""Create and server-side apply requests for manifests."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from onejob.cli.errors import EXIT_FAILED, CommandError
from onejob.cli.manifests.loading import InvalidManifests, Manifest, Problem, placed
from onejob.cli.sources.base import FIELD_MANAGER, Api, ApiRequest, ApiResponse, path_of
from onejob.objects.meta import NAMESPACES
from onejob.wire.errors import ApiError, BadRequest, NotFound
from onejob.wire.kinds import BY_KIND


def manifest_namespace(manifest: Manifest, asked: str, default: str = "default") -> str:
    """Return the namespace of a manifest: its own, else -n (`asked`), else `default`.

    "" for cluster-scoped kinds. Raises CommandError if the manifest and -n disagree.
    """
    if not manifest.kind.namespaced:
        return ""
    own = (manifest.document.get("metadata") or {}).get("namespace")
    if own and asked and own != asked:
        text = f"the manifest specifies namespace {own}, not {asked}"
        raise CommandError(
            placed(text, manifest.source, manifest.number), f"remove -n, or use -n {own}"
        )
    return own or asked or default


def create(
    api: Api, manifest: Manifest, namespace: str, *, dry_run: bool = False
) -> dict[str, Any]:
    ask = ApiRequest(
        "POST",
        path_of(manifest.kind, namespace),
        _parameters(dry_run=dry_run),
        body=msgspec.json.encode(manifest.document),
    )
    return _send(api, ask, manifest).document


def apply(
    api: Api, manifest: Manifest, namespace: str, *, force: bool, dry_run: bool = False
) -> tuple[dict[str, Any], bool]:
    """Apply a manifest with server-side apply. Return the object and whether it was created."""
    if not manifest.name:
        raise CommandError(
            placed("apply requires metadata.name", manifest.source, manifest.number),
            "use onejob create for generateName",
        )
    query = {**_parameters(dry_run=dry_run), "force": "true" if force else ""}
    ask = ApiRequest(
        "PATCH",
        path_of(manifest.kind, namespace, manifest.name),
        query,
        body=msgspec.json.encode(manifest.document),
        content_type="application/apply-patch+yaml",
    )
    reply = _send(api, ask, manifest)
    return reply.document, reply.code == 201


def print_warnings(warnings: Sequence[str]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def _parameters(*, dry_run: bool) -> dict[str, str]:
    return {
        "fieldManager": FIELD_MANAGER,
        "fieldValidation": "Strict",
        "dryRun": "All" if dry_run else "",
    }


def _next_step(error: ApiError) -> str:
    causes = error.details.get("causes") or ()
    if any(cause.get("reason") == "FieldManagerConflict" for cause in causes):
        return "--force-conflicts takes ownership of these fields"
    if isinstance(error, NotFound) and error.details.get("kind") == NAMESPACES:
        return f"create it with onejob create namespace {error.details.get('name')}"
    return ""


def _misspelt(manifest: Manifest) -> list[Problem]:
    """Return the schema errors with line numbers, which the server's response cannot contain."""
    key = manifest.kind.api_version, manifest.kind.kind
    if not manifest.text or key not in BY_KIND:
        return []
    from onejob.cli.manifests.checking import shape_problems

    return shape_problems(manifest)


def _send(api: Api, ask: ApiRequest, manifest: Manifest) -> ApiResponse:
    try:
        reply = api.send(ask)
    except ApiError as error:
        if isinstance(error, BadRequest) and (problems := _misspelt(manifest)):
            raise InvalidManifests(problems, exit_code=EXIT_FAILED) from None
        text = " ".join(error.message.split())
        raise CommandError(
            placed(text, manifest.source, manifest.number),
            _next_step(error),
            exit_code=EXIT_FAILED,
        ) from None
    print_warnings(reply.warnings)
    return reply
