"""Every write, up to the point where it is staged: check, shape, decide, stage.

All of this is synchronous, so that nothing comes between reading an object and writing it:
a patch never conflicts with itself, and a batch of writes shares one commit. Callers await
`store.durable(outcome.revision)` before they tell anybody.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec

from onejob.api.damage import placeholder
from onejob.api.schema.comparing import semantically_equal
from onejob.api.schema.schema import Schema, Type, WrongShape, all_problems
from onejob.api.security_warnings import security_warnings
from onejob.api.strategy import Document, Guard, Strategy
from onejob.api.writing.apply import apply
from onejob.api.writing.deletion import (
    Stay,
    check_deletable,
    check_preconditions,
    decide_deletion,
    gone_after_update,
)
from onejob.api.writing.managed_fields import track_update
from onejob.api.writing.metadata import (
    carry_over,
    check_type,
    generated_name,
    metadata_of,
    new_finalizers,
    ordered,
    prepare_created,
    wrong_name,
)
from onejob.api.writing.patching import json_patch, merge_patch
from onejob.api.writing.pieces import at_revision
from onejob.api.writing.strategic_merge import strategic_merge
from onejob.clock import Clock
from onejob.objects.meta import NAMESPACES, Key
from onejob.planning.pod.security import Means
from onejob.store.base import StagingStore, Stored
from onejob.wire.errors import (
    ApiError,
    BadRequest,
    Forbidden,
    Invalid,
    RequestTooLarge,
    already_exists,
    conflict,
    not_found,
)
from onejob.wire.field_errors import invalid
from onejob.wire.kinds import Kind
from onejob.wire.requests import DeleteOptions, Outcome, Target, WriteOptions

#: What etcd takes of one object.
MAX_OBJECT_BYTES: Final = 1536 * 1024

#: How often a generated name that is taken is thrown again.
_NAME_TRIES = 8

_encode = msgspec.json.encode
_decode: Callable[[bytes], Document] = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class Writes:
    store: StagingStore
    strategies: Mapping[str, Strategy]
    schema: Schema
    clock: Clock
    rng: Random
    #: How the node enforces a securityContext.
    means: Means
    #: By resource: may this user make such an object of it? Raises Forbidden.
    guards: Mapping[str, Guard]

    # --- create ---------------------------------------------------------------------------

    def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str] = (),
    ) -> Outcome:
        check_type(kind, body)
        warnings = self.normalise(kind, body, options, problems)
        strategy = self.strategies[kind.resource]
        doc = ordered(kind, body)
        now = self.clock.now()
        prepare_created(kind, namespace, doc, now, self.rng, dry_run=options.dry_run)
        metadata = doc["metadata"]
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(kind, namespace, metadata["generateName"])
        # Without a name, what else is wrong is said too.
        name = metadata.get("name", "")
        self._require_namespace(kind, namespace, name)
        strategy.default(doc)
        metadata.pop("managedFields", None)
        if not options.trusted:
            # Before preparing: what the server makes up (a Job's selector) belongs to nobody.
            track_update(None, doc, options.field_manager, now, "", self._type(kind))
        strategy.prepare_create(doc)
        errors = strategy.validate_create(doc)
        if errors:
            raise Invalid(kind.kind, kind.group, name, errors)
        if guard := self.guards.get(kind.resource):
            guard(options.user, kind, namespace, doc, None)
        # Defaults run on every decode upstream, so the answer shows those that preparing made
        # possible (a Job without labels gets its template's).
        strategy.default(doc)
        if kind.subresource("status") is not None and not kind.custom:
            # Upstream's types always have one, so clients expect to find it.
            doc.setdefault("status", {})
        warnings = [*warnings, *strategy.warnings_on_create(doc)]
        warnings += security_warnings(kind, doc, self.means)
        key = Key(kind.storage, namespace, name)
        if self.store.newest(key) is not None:
            raise already_exists(kind.resource, name)
        largest = _largest(options)
        if options.dry_run:
            value = _bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, tuple(warnings))
        stored = self.stage(key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, tuple(warnings))

    def _free_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        for _ in range(_NAME_TRIES):
            name = generated_name(prefix, self.rng)
            if self.store.newest(Key(kind.storage, namespace, name)) is None:
                return name
        raise already_exists(kind.resource, name)

    def _require_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        stored = self.store.newest(Key(NAMESPACES, "", namespace))
        if stored is None:
            raise not_found(NAMESPACES, namespace)
        if (
            b'"deletionTimestamp"' in stored.value
            and "deletionTimestamp" in _decode(stored.value)["metadata"]
        ):
            raise Forbidden(
                f'{kind.resource} "{name}" is forbidden: unable to create new content in '
                f"namespace {namespace} because it is being terminated",
                details={
                    "name": name,
                    **({"group": kind.group} if kind.group else {}),
                    "kind": kind.plural,
                    "causes": [
                        {
                            "reason": "NamespaceTerminating",
                            "message": f"namespace {namespace} is being terminated",
                            "field": "metadata.namespace",
                        }
                    ],
                },
            )

    # --- update and patch -----------------------------------------------------------------

    def update(
        self,
        target: Target,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str] = (),
    ) -> Outcome:
        kind = target.kind
        check_type(kind, body)
        warnings = self.normalise(kind, body, options, problems)
        stored, old = self._existing(target)
        new = ordered(kind, body)
        if metadata_of(new).get("resourceVersion", "") in ("", "0"):
            self._require_unconditional(target)
        else:
            _check_revision(target, new, stored)
        return self._replace(target, new, old, stored, options, warnings, patching=False)

    def patch(
        self,
        target: Target,
        patch_type: str,
        body: Any,
        options: WriteOptions,
        problems: Sequence[str] = (),
    ) -> Outcome:
        if patch_type == "apply":
            return self._apply(target, body, options, problems)
        stored, old = self._existing(target)
        match patch_type:
            case "json":
                patched = json_patch(old, body)
            case "merge":
                patched = merge_patch(old, body)
            case "strategic":
                patched = strategic_merge(old, body, self._type(target.kind))
            case _:
                raise BadRequest(f"unknown patch type {patch_type!r}")
        warnings = self._normalise_patched(target.kind, patched, options, problems)
        new = ordered(target.kind, patched)
        _check_revision(target, new, stored)
        return self._replace(target, new, old, stored, options, warnings, patching=True)

    def _apply(
        self, target: Target, body: Any, options: WriteOptions, problems: Sequence[str]
    ) -> Outcome:
        kind, name = target.kind, target.name
        if not isinstance(body, dict):
            raise BadRequest("an apply patch must be an object")
        check_type(kind, body)
        warnings = self.normalise(kind, body, options, problems)
        applied = ordered(kind, body)
        metadata = metadata_of(applied)
        if metadata.setdefault("name", name) != name:
            raise wrong_name(metadata["name"], name)
        stored = self.store.newest(target.key)
        old = None if stored is None else _decode(stored.value)
        if old is None and target.subresource:
            raise not_found(kind.resource, name)
        if old is None and metadata.get("uid"):
            why = (
                f"uid mismatch: the provided object specified uid {metadata['uid']}, and no "
                "existing object was found"
            )
            raise conflict(kind.resource, name, why)
        new = apply(
            old,
            applied,
            options.field_manager,
            options.force,
            self._type(kind),
            self.clock.now(),
            target.subresource,
        )
        if stored is None or old is None:
            return self._create_applied(target, new, options, warnings)
        _check_revision(target, applied, stored)
        new = ordered(kind, new)
        return self._replace(
            target, new, old, stored, options, warnings, patching=True, tracked=True
        )

    def _create_applied(
        self, target: Target, new: Document, options: WriteOptions, warnings: Sequence[str]
    ) -> Outcome:
        managed = new["metadata"].get("managedFields")
        checked = WriteOptions(options.user, dry_run=True, trusted=True)
        created = self.create(target.kind, target.namespace, new, checked)
        doc = _decode(created.document)
        if managed:
            doc["metadata"]["managedFields"] = managed
        warnings = (*warnings, *created.warnings)
        largest = _largest(options)
        if options.dry_run:
            value = _bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, warnings)
        stored = self.stage(target.key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, warnings)

    def _replace(
        self,
        target: Target,
        new: Document,
        old: Document,
        stored: Stored,
        options: WriteOptions,
        warnings: Sequence[str],
        *,
        patching: bool,
        tracked: bool = False,
    ) -> Outcome:
        """Put `new` in the place of `old`, as far as this endpoint may change it."""
        kind = target.kind
        strategy = self.strategies[kind.resource]
        carry_over(kind, new, old, namespace=target.namespace, name=target.name, patching=patching)
        errors = new_finalizers(new, old)
        if target.subresource != "finalize":
            strategy.default(new)
        if options.trusted:
            _keep_managed_fields(new, old)
        elif not tracked:
            # Before preparing: what the server makes up belongs to nobody.
            now, manager = self.clock.now(), options.field_manager
            track_update(old, new, manager, now, target.subresource, self._type(kind))
        match target.subresource:
            case "status":
                strategy.prepare_status_update(new, old)
                errors = [*errors, *strategy.validate_status_update(new, old)]
            case "finalize":
                _only_spec_finalizers(new, old)
            case _:
                strategy.prepare_update(new, old)
                errors = [*errors, *strategy.validate_update(new, old)]
                warnings = [*warnings, *strategy.warnings_on_update(new, old)]
        if errors:
            raise Invalid(kind.kind, kind.group, target.name, errors)
        if guard := self.guards.get(kind.resource):
            guard(options.user, kind, target.namespace, new, old)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        if new == old or (not options.trusted and _same_but_for_times(kind, new, old)):
            return Outcome(200, stored.value, stored.revision, tuple(warnings))
        # An object that was too large before the limit may still be changed, but not grow.
        largest = max(_largest(options), len(stored.value))
        if options.dry_run:
            value = _bounded(_encode(new), largest)
            return Outcome(200, value, stored.revision, tuple(warnings))
        if gone_after_update(new):
            removed = self.remove(msgspec.structs.replace(stored, value=_encode(new)))
            return msgspec.structs.replace(removed, warnings=tuple(warnings))
        staged = self.stage(stored.key, stored.revision, new, largest)
        return Outcome(200, staged.value, staged.revision, tuple(warnings))

    def _require_unconditional(self, target: Target) -> None:
        kind = target.kind
        if not self.strategies[kind.resource].unconditional_update:
            why = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise Invalid(kind.kind, kind.group, target.name, [why])

    # --- delete ---------------------------------------------------------------------------

    def delete(self, target: Target, options: DeleteOptions) -> Outcome:
        kind = target.kind
        if options.despite_damage and target.key in self.store.damaged:
            return self._discard(target, options)
        stored, doc = self._existing(target)
        check_deletable(target)
        check_preconditions(kind, doc, options)
        strategy = self.strategies[kind.resource]
        match decide_deletion(doc, strategy, options, self.clock.now()):
            case Stay(document=marked):
                if kind.storage == NAMESPACES:
                    marked = {
                        **marked,
                        "status": {**marked.get("status", {}), "phase": "Terminating"},
                    }
                if marked == doc or options.dry_run:
                    return Outcome(200, _encode(marked), stored.revision)
                staged = self.stage(stored.key, stored.revision, marked)
                return Outcome(200, staged.value, staged.revision)
            case _:
                if options.dry_run:
                    return Outcome(200, stored.value, stored.revision)
                return self.remove(stored)

    def _discard(self, target: Target, options: DeleteOptions) -> Outcome:
        """Nobody can tell what finalizers or preconditions would say."""
        check_deletable(target)
        revision = self.store.damaged[target.key]
        if not options.dry_run:
            revision = self.store.discard(target.key)
        return Outcome(200, placeholder(target, revision), revision)

    def remove(self, stored: Stored) -> Outcome:
        """Take an object away that nothing holds. The answer is its last state, with the
        revision of its end."""
        self.store.stage(stored.key, stored.revision, None)
        revision = self.store.staged_revision
        return Outcome(200, at_revision(stored.value, stored.revision, revision), revision)

    # --- shared ---------------------------------------------------------------------------

    def _existing(self, target: Target) -> tuple[Stored, Document]:
        stored = self.store.newest(target.key)
        if stored is None:
            raise not_found(target.kind.resource, target.name)
        return stored, _decode(stored.value)

    def stage(self, key: Key, expected: int, doc: Document, largest: int = sys.maxsize) -> Stored:
        """Raises RequestTooLarge for a document of more than `largest` bytes."""
        metadata = doc["metadata"]

        def encode(revision: int) -> bytes:
            metadata["resourceVersion"] = str(revision)
            return _bounded(_encode(doc), largest)

        staged = self.store.stage(key, expected, encode, cold=is_cold(key.resource, doc))
        assert staged is not None, "only a deletion leaves nothing behind"
        return staged

    def _type(self, kind: Kind) -> Type:
        return self.schema.kind(kind.api_version, kind.kind)

    def normalise(
        self, kind: Kind, body: Document, options: WriteOptions, problems: Sequence[str]
    ) -> list[str]:
        """Prune the body to the schema; what was wrong becomes an error, warnings or nothing."""
        if options.trusted:
            return []
        found = all_problems(self.schema.normalise(body, self._type(kind)), problems)
        return _judge(
            found,
            options,
            lambda text: BadRequest(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {text}"
            ),
        )

    def _normalise_patched(
        self, kind: Kind, new: Document, options: WriteOptions, problems: Sequence[str]
    ) -> list[str]:
        if options.trusted:
            return []
        try:
            found = all_problems(self.schema.normalise(new, self._type(kind)), problems)
        except WrongShape as wrong_type:
            # A patch is fine by itself; what it makes of the object is not: hence 422.
            raise _invalid_patch(kind, wrong_type.problem) from wrong_type
        return _judge(
            found, options, lambda text: _invalid_patch(kind, f"strict decoding error: {text}")
        )


def _largest(options: WriteOptions) -> int:
    """What onejob itself adds to an object (its status) is never refused."""
    return sys.maxsize if options.trusted else MAX_OBJECT_BYTES


def _bounded(value: bytes, largest: int) -> bytes:
    if len(value) > largest:
        # Upstream says the first words with 500; but it is the request that is wrong, and 500
        # has clients try again.
        raise RequestTooLarge(
            f"etcdserver: request is too large: the object takes {len(value)} bytes, the limit "
            f"is {MAX_OBJECT_BYTES}"
        )
    return value


def _check_revision(target: Target, new: Document, stored: Stored) -> None:
    """A revision in the body makes the write a compare-and-swap."""
    given = metadata_of(new).get("resourceVersion", "")
    if given and given != str(stored.revision):
        raise conflict(target.kind.resource, target.name)


def is_cold(resource: str, doc: Document) -> bool:
    """Whether this version will rarely be read again, so that it need not stay in memory."""
    match resource:
        case "pods":
            ended = doc.get("status", {}).get("phase") in ("Succeeded", "Failed")
            return ended and not doc["metadata"].get("finalizers")
        case "jobs.batch":
            return any(
                condition["type"] in ("Complete", "Failed") and condition["status"] == "True"
                for condition in doc.get("status", {}).get("conditions", ())
            )
        case "events":
            return True
        case _:
            return False


def _judge(
    problems: Sequence[str], options: WriteOptions, strict: Callable[[str], ApiError]
) -> list[str]:
    if not problems or options.field_validation == "Ignore":
        return []
    if options.field_validation == "Strict":
        raise strict(", ".join(problems))
    return list(problems)


def _invalid_patch(kind: Kind, why: str) -> Invalid:
    error = Invalid(kind.kind, kind.group, "", [invalid("patch", "<object>", why)])
    error.message = f' "" is invalid: {error.errors[0]}'
    return error


def _keep_managed_fields(new: Document, old: Document) -> None:
    kept = old["metadata"].get("managedFields")
    if kept is not None:
        new["metadata"]["managedFields"] = kept
    else:
        new["metadata"].pop("managedFields", None)


def _same_but_for_times(kind: Kind, new: Document, old: Document) -> bool:
    """Whether nothing changed but the shape of empties and the times in managedFields."""
    if kind.custom:
        # No Go type drops what is empty: `{}` is not the same as nothing.
        return _without_times(new) == _without_times(old)
    return semantically_equal(_without_times(new), _without_times(old))


def _without_times(doc: Document) -> Document:
    entries = doc["metadata"].get("managedFields")
    if not entries:
        return doc
    timeless = [{k: v for k, v in entry.items() if k != "time"} for entry in entries]
    return {**doc, "metadata": {**doc["metadata"], "managedFields": timeless}}


def _only_spec_finalizers(new: Document, old: Document) -> None:
    finalizers = new.get("spec", {}).get("finalizers", [])
    new["metadata"] = dict(old["metadata"])
    for field in list(new):
        if field not in ("apiVersion", "kind", "metadata", "spec"):
            del new[field]
    new["spec"] = {**old.get("spec", {}), "finalizers": finalizers}
    if "status" in old:
        new["status"] = old["status"]
