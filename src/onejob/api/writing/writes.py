"""Update, patch, apply and delete: validate, default, admit and stage a write.

Writes are synchronous, so that no other write comes between reading an object and staging it: a
patch never conflicts with concurrent writes, and a batch of writes shares one commit. Callers await
`store.durable(outcome.revision)` before they send a response.
"""

import operator
import sys
from collections.abc import Sequence, Set
from functools import partial
from typing import Any, Final

import msgspec
from msgspec import UNSET

from onejob.api.documents import decode, deep_copy, same_json
from onejob.api.kinds.base import keep_section
from onejob.api.schema.comparing import semantically_equal
from onejob.api.schema.schema import Type, TypeMismatch, all_problems
from onejob.api.strategy import Document
from onejob.api.unreadable import placeholder
from onejob.api.writing.context import (
    MAX_OBJECT_BYTES,
    apply_field_validation,
    bounded,
    largest_size,
    strict_decoding_error,
)
from onejob.api.writing.creating import Creates
from onejob.api.writing.deletion import (
    Stay,
    check_deletable,
    check_preconditions,
    decide_deletion,
    gone_after_update,
)
from onejob.api.writing.managed_fields import status_writer, track_update
from onejob.api.writing.metadata import (
    FREE_FIELDS,
    carry_over,
    changed_members,
    check_type,
    metadata_of,
    new_finalizers,
    ordered,
    settle_free_fields,
    wrong_name,
)
from onejob.api.writing.patching import json_patch, merge_patch
from onejob.api.writing.section_patches import (
    PodPatch,
    SectionPatch,
    SectionWrite,
    patch_section,
    read_section_patch,
)
from onejob.api.writing.status_entries import shares_status
from onejob.api.writing.status_patches import patch_status, read_status_patch
from onejob.api.writing.strategic_merge import strategic_merge
from onejob.objects.meta import NAMESPACES, PODS, Key
from onejob.store.base import DamagedDocument, Stored
from onejob.wire.errors import (
    ApiError,
    BadRequest,
    Invalid,
    conflict,
    not_found,
)
from onejob.wire.field_errors import FieldError, invalid
from onejob.wire.kinds import BY_RESOURCE, Kind
from onejob.wire.requests import DeleteOptions, Outcome, Target, WriteOptions, Written

_STATUS: Final = frozenset(("status",))
_PODS: Final = BY_RESOURCE[PODS]

_encode = msgspec.json.encode


class Writes(Creates, frozen=True):
    """Update, patch, apply and delete requests."""

    def update(
        self,
        target: Target,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str] = (),
    ) -> Outcome:
        kind = target.kind
        check_type(kind, body)
        stored = self.store.newest(target.key)
        if stored is None:
            self.normalise(kind, body, options, problems)
            raise not_found(kind.resource, target.name)
        old = decode(stored.value)
        if not kind.custom:
            share_equal_sections(body, old)
        warnings = self.normalise(kind, body, options, problems, old=old)
        new = ordered(kind, body)
        if metadata_of(new).get("resourceVersion", "") in ("", "0"):
            self._require_unconditional(target)
        else:
            _check_revision(target, metadata_of(new), stored)
        touched = changed_members(new, old)
        return self._replace(target, new, old, touched, stored, options, warnings, patching=False)

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
        kind = target.kind
        stored = self.store.newest(target.key)
        if stored is None:
            raise not_found(kind.resource, target.name)
        old = decode(stored.value)
        patched: Document
        match patch_type:
            case "json":
                patched = json_patch(old, body)
            case "merge":
                patched = merge_patch(old, body)
            case "strategic":
                patched = strategic_merge(old, body, self.schema.kind(kind.api_version, kind.kind))
            case _:
                raise BadRequest(f"unknown patch type {patch_type!r}")
        warnings: list[str] = []
        if not options.trusted:
            warnings = self._normalise_patched(kind, patched, old, options, problems)
        patched = ordered(kind, patched)
        _check_revision(target, metadata_of(patched), stored)
        touched = changed_members(patched, old)
        return self._replace(
            target, patched, old, touched, stored, options, warnings, patching=True
        )

    def patch_pods(
        self, patches: Sequence[PodPatch], options: WriteOptions
    ) -> list[Written | ApiError | DamagedDocument]:
        """Apply strategic merge patches of one of onejob's own writers to Pods.

        Equal to `patch` for each of them. Returns one result each, in order.
        """
        results: list[Written | ApiError | DamagedDocument] = []
        last, section_patch = None, None
        shape = self.type_of(_PODS)
        for patch in patches:
            if last is None or patch.content is not last.content:
                section_patch = read_section_patch(patch.content)
            last = patch
            try:
                results.append(self._patch_pod(patch, section_patch, shape, options))
            except (ApiError, DamagedDocument) as error:
                results.append(error)
        return results

    def _patch_pod(
        self,
        patch: PodPatch,
        section_patch: SectionPatch | None,
        shape: Type,
        options: WriteOptions,
    ) -> Written:
        key = patch.key
        stored = self.store.newest(key)
        if stored is None:
            raise not_found(PODS, key.name)
        write = None
        if section_patch is not None and (
            (patch.subresource == "status") is (section_patch.status is not UNSET)
        ):
            write = patch_section(stored, section_patch, shape)
        if write is None:
            target = Target(_PODS, key.namespace, key.name, patch.subresource)
            outcome = self.patch(target, "strategic", decode(patch.body), options)
            return Written(outcome.revision, outcome.document)
        staged: Stored | None = stored
        if type(write) is SectionWrite:
            staged = self.store.stage(
                key,
                stored.revision,
                write.at,
                cold=write.cold,
                quiet=write.quiet,
                tail=write.tail,
                finalizers=write.finalizers,
            )
        assert staged is not None, "only a deletion leaves nothing behind"
        return Written(staged.revision, staged.value)

    def patch_status(self, target: Target, body: bytes, options: WriteOptions) -> Outcome:
        """Apply a merge patch of one of onejob's own writers to the status.

        Equal to `patch`. Kinds without rules for the status are not decoded.
        """
        kind = target.kind
        patch = None
        if (
            self.strategies[kind.resource].status_without_rules
            and self.reviewer is None
            and kind.resource not in self.guards
            and not options.dry_run
        ):
            patch = read_status_patch(body)
        stored = None if patch is None else self.store.newest(target.key)
        if patch is None or stored is None:
            return self.patch(target, "merge", decode(body), options)
        given = patch.metadata.resource_version
        if given and given != str(stored.revision):
            raise conflict(kind.resource, target.name)
        write = patch_status(stored, patch)
        if write is None:
            return self.patch(target, "merge", decode(body), options)
        if isinstance(write, Stored):
            return Outcome(200, stored.value, stored.revision)
        staged = self.store.stage(target.key, stored.revision, write.at)
        assert staged is not None, "only a deletion leaves nothing behind"
        return Outcome(200, staged.value, staged.revision)

    def _apply(
        self, target: Target, body: Any, options: WriteOptions, problems: Sequence[str]
    ) -> Outcome:
        """Return the outcome of a server-side apply, which creates a missing object. Raises
        BadRequest, Conflict and errors of validation."""
        kind, name = target.kind, target.name
        if not isinstance(body, dict):
            raise BadRequest("an apply patch must be an object")
        check_type(kind, body)
        warnings = self._normalise_applied(target, body, options, problems)
        applied = ordered(kind, body)
        metadata = metadata_of(applied)
        if metadata.setdefault("name", name) != name:
            raise wrong_name(metadata["name"], name)
        stored = self.store.newest(target.key)
        old = None if stored is None else decode(stored.value)
        if old is None and target.subresource:
            raise not_found(kind.resource, name)
        if old is None and metadata.get("uid"):
            why = (
                f"uid mismatch: the provided object specified uid {metadata['uid']}, and no "
                "existing object was found"
            )
            raise conflict(kind.resource, name, why)
        # Imported lazily, because few clients apply.
        from onejob.api.writing.apply import apply

        new = apply(
            old,
            applied,
            options.field_manager,
            options.force,
            self.type_of(kind),
            self.clock.now(),
            target.subresource,
        )
        if stored is None or old is None:
            return self._create_applied(target, new, options, warnings)
        _check_revision(target, metadata, stored)
        new = ordered(kind, new)
        touched = changed_members(new, old)
        return self._replace(
            target, new, old, touched, stored, options, warnings, patching=True, tracked=True
        )

    def _normalise_applied(
        self, target: Target, body: Document, options: WriteOptions, problems: Sequence[str]
    ) -> list[str]:
        """Do the same as `normalise`, but report unknown fields with upstream's error for apply."""
        if options.trusted:
            return []
        unknown = self.pruned(target.kind, body, None)
        if unknown and options.field_validation == "Strict":
            raise _undeclared_fields(target, unknown)
        found = all_problems(unknown, problems)
        return apply_field_validation(found, options, partial(strict_decoding_error, target.kind))

    def _create_applied(
        self, target: Target, new: Document, options: WriteOptions, warnings: Sequence[str]
    ) -> Outcome:
        if options.require_create is not None:
            options.require_create()
        managed = new["metadata"].get("managedFields")
        checked = WriteOptions(options.user, dry_run=True, trusted=True)
        created = self.create(target.kind, target.namespace, new, checked)
        doc = decode(created.document)
        if managed:
            doc["metadata"]["managedFields"] = managed
        warnings = (*warnings, *created.warnings)
        largest = largest_size(options)
        if options.dry_run:
            value = bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, warnings)
        stored = self.stage(target.key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, warnings)

    def _replace(
        self,
        target: Target,
        new: Document,
        old: Document,
        touched: Set[str],
        stored: Stored,
        options: WriteOptions,
        warnings: Sequence[str],
        *,
        patching: bool,
        tracked: bool = False,
        mutated: bool = False,
    ) -> Outcome:
        """Stage `new` in place of `old`, limited to the fields that this endpoint may change.

        `touched` contains the names of all members that may differ. Rules for a section run only if
        it is touched, since stored sections were validated when they were written. An update
        without changes stages nothing and returns the stored version. `mutated` is true after the
        mutating phase of dynamic admission. Raises Invalid, or Forbidden from guards and admission.
        """
        kind, subresource, trusted = target.kind, target.subresource, options.trusted
        strategy = self.strategies[kind.resource]
        # A status report by onejob's own writers: no rules other than those for status apply.
        reports = trusted and subresource == "status" and touched <= _STATUS
        errors: list[FieldError] = []
        stored_metadata = old["metadata"]
        changed: Set[str] = frozenset()
        if "metadata" in touched:
            metadata = metadata_of(new)
            changed = changed_members(metadata, stored_metadata)
            if changed <= FREE_FIELDS:
                errors = settle_free_fields(metadata, stored_metadata, changed)
            else:
                place = (target.namespace, target.name)
                carry_over(kind, metadata, stored_metadata, *place, patching=patching)
                errors = new_finalizers(metadata, stored_metadata)
                if trusted:
                    keep_section(metadata, stored_metadata, "managedFields")
        else:
            # Shared with the stored document, so copied before the changes below. A report changes
            # only its resourceVersion, when it is staged.
            metadata = stored_metadata if reports else stored_metadata.copy()
            new["metadata"] = metadata
        for name in (
            touched - {"metadata"} if strategy.shares_sections else new.keys() - {"metadata"}
        ):
            if name in new:
                new[name] = deep_copy(new[name])
        # Whether rules other than those for metadata and status may apply.
        further = "spec" in touched or not strategy.judges_spec_alone
        if further and subresource != "finalize":
            strategy.default(new, old)
        if subresource == "resize":
            # Before changes get an owner: this endpoint drops all changes but those of resources.
            self.admission.default_resize(target.namespace, new)
            strategy.prepare_resize(new, old)
        elif subresource == "ephemeralcontainers":
            strategy.prepare_ephemeral_containers(new, old)
        if not trusted and not tracked:
            # Before `prepare_update`: fields that the server generates have no owner.
            now, manager = self.clock.now(), options.field_manager
            track_update(old, new, manager, now, subresource, self.type_of(kind))
        elif subresource == "status" and trusted and shares_status(stored_metadata):
            type_ = self.type_of(kind)
            if metadata is stored_metadata:
                metadata = new["metadata"] = stored_metadata.copy()
            track_update(old, new, status_writer(type_), self.clock.now(), subresource, type_)
        if self.reviewer is not None and not mutated:
            settle = self.settle_mutated(kind, old)
            changed_new = self.reviewer.mutated("UPDATE", target, new, old, settle)
            if changed_new is not None:
                if not kind.custom:
                    share_equal_sections(changed_new, old)
                touched = changed_members(changed_new, old)
                return self._replace(
                    target, changed_new, old, touched, stored, options, warnings,
                    patching=patching, tracked=True, mutated=True,
                )  # fmt: skip
        if subresource == "status":
            strategy.prepare_status_update(new, old)
            errors += strategy.validate_status_update(new, old)
        elif subresource == "approval":
            strategy.prepare_approval(new, old)
            errors += strategy.validate_approval(new, old)
        elif subresource == "resize":
            errors += strategy.validate_resize(new, old)
        elif subresource == "ephemeralcontainers":
            errors += strategy.validate_ephemeral_containers(new, old)
        elif subresource == "finalize":
            _only_spec_finalizers(new, old)
        elif further or "status" in touched:
            strategy.prepare_update(new, old)
            errors += strategy.validate_update(new, old)
            warnings = [*warnings, *strategy.warnings_on_update(new, old)]
        elif not changed.isdisjoint(metadata):
            errors += strategy.validate_changed_metadata(new, old)
        if errors:
            raise Invalid(kind.kind, kind.group, target.name, errors)
        if guard := self.guards.get(kind.resource):
            guard(options.user, kind, target.namespace, new, old)
        if further and subresource in ("", "resize", "ephemeralcontainers"):
            warnings = [*warnings, *self.admission.review_update(target, new, old)]
            if self.asks_quotas:
                self.admission.require_quota(stored.key, new, created=False)
        if reports:
            same = new.get("status") == old.get("status")
        else:
            # Read again, because `finalize` replaced the metadata by a copy of the stored one.
            metadata = new["metadata"]
            metadata["resourceVersion"] = stored_metadata["resourceVersion"]
            equal = same_json if kind.custom else operator.eq
            same = equal(new, old) or (not trusted and _same_but_for_times(kind, new, old))
        if self.reviewer is not None:
            self.reviewer.validated("UPDATE", target, new, old)
        if same:
            return Outcome(200, stored.value, stored.revision, tuple(warnings))
        # An object stored with more than the current limit may change, but not grow.
        largest = sys.maxsize if trusted else max(MAX_OBJECT_BYTES, len(stored.value))
        if options.dry_run:
            value = bounded(_encode(new), largest)
            return Outcome(200, value, stored.revision, tuple(warnings))
        if "deletionTimestamp" in metadata and gone_after_update(new):
            removed = self.remove(msgspec.structs.replace(stored, value=_encode(new)))
            return msgspec.structs.replace(removed, warnings=tuple(warnings))
        quiet = touched == _STATUS and begins_to_run(stored.key, new, old)
        staged = self.stage(stored.key, stored.revision, new, largest, quiet=quiet)
        return Outcome(200, staged.value, staged.revision, tuple(warnings))

    def _require_unconditional(self, target: Target) -> None:
        kind = target.kind
        if not self.strategies[kind.resource].unconditional_update:
            why = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise Invalid(kind.plural, kind.group, target.name, [why])

    def _normalise_patched(
        self,
        kind: Kind,
        new: Document,
        old: Document,
        options: WriteOptions,
        problems: Sequence[str],
    ) -> list[str]:
        try:
            found = all_problems(self.pruned(kind, new, old), problems)
        except TypeMismatch as wrong_type:
            # 422, not 400: the patch is well-formed, but the patched object is invalid.
            raise _invalid_patch(kind, wrong_type.problem) from wrong_type
        return apply_field_validation(
            found, options, lambda text: _invalid_patch(kind, f"strict decoding error: {text}")
        )

    # --- delete ---------------------------------------------------------------------------

    def delete(self, target: Target, options: DeleteOptions) -> Outcome:
        kind = target.kind
        if options.despite_damage and self.store.newest_is_damaged(target.key):
            return self._discard(target, options)
        stored, doc = self._read_existing(target)
        check_deletable(target)
        check_preconditions(kind, doc, options)
        if self.reviewer is not None:
            self.reviewer.mutated("DELETE", target, None, doc, self.settle_mutated(kind))
            self.reviewer.validated("DELETE", target, None, doc)
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
        """Discard a damaged object. Its finalizers and preconditions are unreadable and ignored."""
        check_deletable(target)
        revision = self.store.damaged[target.key]
        if not options.dry_run:
            revision = self.store.discard(target.key)
        return Outcome(200, placeholder(target, revision), revision)


def _check_revision(target: Target, metadata: Document, stored: Stored) -> None:
    """Raise Conflict if `metadata` has a resourceVersion other than the stored one.

    A resourceVersion in the body makes the write a compare-and-swap.
    """
    given = metadata.get("resourceVersion", "")
    if given and given != str(stored.revision):
        raise conflict(target.kind.resource, target.name)


def _undeclared_fields(target: Target, unknown: Sequence[str]) -> BadRequest:
    """Return the error of a strict apply with unknown fields.

    The message is upstream's, the code is not: upstream sends 500, although the request is at
    fault. List items are identified by position, not by their keys.
    """
    texts = [
        f".{text.removeprefix('unknown field ').strip(chr(34))}: field not declared in schema"
        for text in unknown
    ]
    errors = texts[0] if len(texts) == 1 else "\n  ".join(["errors:", *texts])
    kind = target.kind
    what = f"{target.namespace}/{target.name}; {kind.api_version}, Kind={kind.kind}"
    return BadRequest(f"failed to create typed patch object ({what}): {errors}")


def _invalid_patch(kind: Kind, why: str) -> Invalid:
    error = Invalid(kind.kind, kind.group, "", [invalid("patch", "<object>", why)])
    error.message = f' "" is invalid: {error.errors[0]}'
    return error


def _same_but_for_times(kind: Kind, new: Document, old: Document) -> bool:
    """Return whether only empty values and the times in managedFields differ."""
    # Custom kinds have no Go type that omits empty values: `{}` differs from an absent field.
    same = same_json if kind.custom else semantically_equal
    return all(
        same(new.get(name), old.get(name)) for name in new.keys() | old.keys() if name != "metadata"
    ) and same(_without_times(new["metadata"]), _without_times(old["metadata"]))


def _without_times(metadata: Document) -> Document:
    entries = metadata.get("managedFields")
    if not entries:
        return metadata
    timeless = [{k: v for k, v in entry.items() if k != "time"} for entry in entries]
    return {**metadata, "managedFields": timeless}


def begins_to_run(key: Key, new: Document, old: Document) -> bool:
    """Return whether a write changes a Pod's phase to Running.

    No controller has to act on this at once: it only changes the number of ready Pods shown.
    """
    if key.resource != PODS:
        return False
    before, after = old.get("status", {}).get("phase"), new.get("status", {}).get("phase")
    return bool(after == "Running" != before)


def share_equal_sections(body: Document, old: Document) -> None:
    """Replace members of `body` by the equal ones of `old`: they need no further validation."""
    for name, value in body.items():
        stored = old.get(name)
        if value.__class__ is dict and value == stored and _encode(value) == _encode(stored):
            body[name] = stored


def _only_spec_finalizers(new: Document, old: Document) -> None:
    """Restore everything but spec.finalizers from the old object, in place."""
    finalizers = new.get("spec", {}).get("finalizers", [])
    new["metadata"] = dict(old["metadata"])
    for name in list(new):
        if name not in ("apiVersion", "kind", "metadata", "spec"):
            del new[name]
    new["spec"] = {**old.get("spec", {}), "finalizers": finalizers}
    if "status" in old:
        new["status"] = old["status"]
