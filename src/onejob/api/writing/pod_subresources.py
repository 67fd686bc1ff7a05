"""The binding and eviction subresources of Pods."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from onejob.api.decoding.query import delete_options_from_body
from onejob.api.documents import decode
from onejob.api.strategy import Document
from onejob.api.writing.deletion import check_preconditions
from onejob.api.writing.metadata import timestamp, uid_mismatch
from onejob.api.writing.placing import assign, status_with, why_unplaceable
from onejob.api.writing.writes import Writes
from onejob.objects.meta import PODS, Key
from onejob.wire.errors import BadRequest, Conflict, not_found
from onejob.wire.kinds import BY_RESOURCE
from onejob.wire.requests import Outcome, Target, WriteOptions

_POD = BY_RESOURCE[PODS]


def bind(
    writes: Writes, namespace: str, name: str, body: Document, options: WriteOptions
) -> Outcome:
    """Assign a Pod to a node, once, and return a Status.

    The body contains the Pod's name if the URL does not (`name` is ""). Raises BadRequest, NotFound
    or Conflict.
    """
    if not options.trusted:
        _require_shape(writes, body, "v1", "Binding")
    target = body.get("target", {})
    node = target.get("name", "")
    if not node:
        raise BadRequest("target.name: Required value")
    of_kind = target.get("kind", "")
    if of_kind not in ("", "Node"):
        raise BadRequest(
            f'target.kind: Unsupported value: "{of_kind}": supported values: "Node", "<empty>"'
        )
    given = body.get("metadata", {}).get("name", "")
    if name and given and given != name:
        raise BadRequest("name in URL does not match name in Binding object")
    uid = body.get("metadata", {}).get("uid", "")
    bound = bind_pod(writes, Key(PODS, namespace, name or given), node, uid, options)
    return _accepted(bound.revision)


def bind_pod(writes: Writes, key: Key, node: str, uid: str, options: WriteOptions) -> Outcome:
    """Assign a Pod to a node, and return the Pod.

    Raises NotFound, or Conflict if the UID differs, the Pod is being deleted, already has a node or
    has scheduling gates.
    """
    stored = writes.store.newest(key)
    name = key.name
    if stored is None:
        raise not_found(PODS, name)
    pod = decode(stored.value)
    metadata = pod["metadata"]
    if uid and uid != metadata["uid"]:
        raise uid_mismatch(_POD, name, uid, metadata["uid"])
    if "deletionTimestamp" in metadata:
        raise _refused(name, f"pod {name} is being deleted, cannot be assigned to a host")
    if why := why_unplaceable(pod["spec"]):
        raise _refused(name, f"pod {name} {why}")
    assign(pod, node, timestamp(writes.clock.now()))
    if options.dry_run:
        return Outcome(201, msgspec.json.encode(pod), stored.revision)
    # Quiet: no watcher needs to act at once, since the node reports the Pod's next change.
    staged = writes.stage(key, stored.revision, pod, quiet=True)
    return Outcome(201, staged.value, staged.revision)


def evict(
    writes: Writes,
    namespace: str,
    name: str,
    body: Document,
    options: WriteOptions,
    budgets: Sequence[Key] = (),
) -> Outcome:
    """Mark a Pod with the DisruptionTarget condition, delete it, and return a Status.

    The Pod's own grace period applies unless the body has delete options. `budgets` are the keys of
    the PodDisruptionBudgets in the namespace.
    """
    if not options.trusted:
        _require_shape(writes, body, "policy/v1", "Eviction")
    if body.get("metadata", {}).get("name", name) != name:
        raise BadRequest("name in URL does not match name in Eviction object")
    stored = writes.store.newest(Key(PODS, namespace, name))
    if stored is None:
        raise not_found(PODS, name)
    deletion = delete_options_from_body(body.get("deleteOptions", {}), options.user)
    deletion = replace(deletion, dry_run=deletion.dry_run or options.dry_run)
    pod = decode(stored.value)
    # Before any write: a Pod that is not deleted must not be marked as evicted.
    check_preconditions(_POD, pod, deletion)
    from onejob.api.writing.disruption_budgets import charge_eviction

    charge_eviction(writes, stored.value, budgets, dry_run=deletion.dry_run)
    terminal = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    if not terminal and not deletion.dry_run:
        evicting = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastTransitionTime": timestamp(writes.clock.now()),
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        marked = {**pod, "status": status_with(pod, evicting)}
        writes.stage(stored.key, stored.revision, marked)
    outcome = writes.delete(Target(_POD, namespace, name), deletion)
    return _accepted(outcome.revision)


def _require_shape(writes: Writes, body: Document, api_version: str, kind: str) -> None:
    """Prune the body to the schema in place. Raise BadRequest for another kind or API version."""
    given = (body.get("apiVersion") or api_version, body.get("kind") or kind)
    if given != (api_version, kind):
        raise BadRequest(f"expected a {kind} of {api_version}, got a {given[1]} of {given[0]}")
    writes.schema.normalise(body, writes.schema.kind(api_version, kind))


def _refused(name: str, why: str) -> Conflict:
    """Return the error of a binding."""
    return Conflict(
        f'Operation cannot be fulfilled on pods/binding "{name}": {why}',
        details={"name": name, "kind": "pods/binding"},
    )


def _accepted(revision: int) -> Outcome:
    """Return the outcome of a successful binding or eviction."""
    status = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    return Outcome(201, msgspec.json.encode(status), revision)
