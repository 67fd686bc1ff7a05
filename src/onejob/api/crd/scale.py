"""Scale subresource: read and patch the number of replicas of a workload or custom object."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from onejob.api.crd.columns import parse_path
from onejob.api.kinds.printing import selector_text
from onejob.api.strategy import Document
from onejob.wire.errors import BadRequest, Invalid, NotFound
from onejob.wire.field_errors import invalid
from onejob.wire.kinds import Kind

API_VERSION: Final = "autoscaling/v1"


class ScalePaths(msgspec.Struct, frozen=True, rename="camel"):
    spec_replicas_path: str
    status_replicas_path: str
    #: Path of a selector, as text or as a LabelSelector.
    label_selector_path: str = ""


#: Paths in Deployments and ReplicaSets.
WORKLOAD: Final = ScalePaths(".spec.replicas", ".status.replicas", ".spec.selector")


def scale_of(
    doc: Document, kind: Kind, paths: ScalePaths, *, to_change: bool = False
) -> dict[str, Any]:
    """Return the Scale of an object.

    Raises NotFound if the object has no replicas field. With `to_change`, a missing field counts as
    no replicas yet.
    """
    replicas = parse_path(paths.spec_replicas_path).first(doc)
    if replicas is None and not to_change:
        name = doc["metadata"]["name"]
        raise NotFound(
            f"the spec replicas field {paths.spec_replicas_path!r} does not exist"
            f" in {kind.resource} {name!r}".replace("'", '"')
        )
    metadata = doc["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    status: dict[str, Any] = {"replicas": parse_path(paths.status_replicas_path).first(doc) or 0}
    if paths.label_selector_path:
        selector = parse_path(paths.label_selector_path).first(doc)
        if selector:
            status["selector"] = selector if isinstance(selector, str) else selector_text(selector)
    return {
        "kind": "Scale",
        "apiVersion": API_VERSION,
        "metadata": {name: metadata[name] for name in kept if name in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def replicas_patch(scale: Mapping[str, Any], name: str, paths: ScalePaths) -> dict[str, Any]:
    """Return a merge patch that sets the replicas of `scale`. Raises BadRequest or Invalid."""
    given = scale.get("metadata") or {}
    if given.get("name") and given["name"] != name:
        raise BadRequest(
            f"the name of the object ({given['name']}) does not match the name on the URL ({name})"
        )
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if isinstance(replicas, bool) or not isinstance(replicas, int):
        raise BadRequest(
            'Scale in version "v1" cannot be handled as a Scale: spec.replicas must be a number'
        )
    if replicas < 0:
        text = "must be greater than or equal to 0"
        raise Invalid("Scale", "autoscaling", name, [invalid("spec.replicas", replicas, text)])
    patch: Any = replicas
    for part in reversed(paths.spec_replicas_path[1:].split(".")):
        patch = {part: patch}
    if given.get("resourceVersion"):
        patch = {**patch, "metadata": {"resourceVersion": given["resourceVersion"]}}
    return dict(patch)
