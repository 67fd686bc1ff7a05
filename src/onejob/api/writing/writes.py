"""Every write, up to the point where it is staged: check, shape, decide, stage.

All of this is synchronous, so that nothing comes between reading an object and writing it:
a patch never conflicts with itself, and a batch of writes shares one commit. Callers await
`store.durable(outcome.revision)` before they tell anybody.
"""

import operator
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import datetime
from random import Random
from typing import Any, Final

import msgspec
from msgspec import Struct

from onejob.api.admission.admission import Admission
from onejob.api.damage import placeholder
from onejob.api.schema.comparing import semantically_equal
from onejob.api.schema.schema import Schema, Type, WrongShape, all_problems
from onejob.api.sections import (
    Section,
    SectionedDocument,
    copied,
    held,
    members,
    names,
    plain,
    same_bytes,
    shallow,
    text_of,
)
from onejob.api.security_warnings import security_warnings
from onejob.api.strategies.base import keep_section
from onejob.api.strategy import Document, Guard, Strategy
from onejob.api.writing.apply import apply
from onejob.api.writing.created_metadata import CreatedMetadata, CreatedMetadatas
from onejob.api.writing.created_spec import CreatedSpecs, JudgedSpec
from onejob.api.writing.deletion import (
    Stay,
    check_deletable,
    check_preconditions,
    decide_deletion,
    gone_after_update,
)
from onejob.api.writing.managed_fields import all_fields, creation_entry, track_update
from onejob.api.writing.metadata import (
    FREE_FIELDS,
    carry_over,
    changed_members,
    check_type,
    generated_name,
    metadata_of,
    new_finalizers,
    new_uid,
    ordered,
    prepare_created,
    settle_free_fields,
    timestamp,
    wrong_name,
)
from onejob.api.writing.patching import json_patch, merge_patch
from onejob.api.writing.pieces import at_revision
from onejob.api.writing.placing import ChooseNode, place_created
from onejob.api.writing.recent_documents import RecentDocuments
from onejob.api.writing.strategic_merge import strategic_merge
from onejob.clock import Clock
from onejob.objects.meta import NAMESPACES, PODS, Key, key_at
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
from onejob.wire.field_errors import FieldError, invalid
from onejob.wire.kinds import Kind
from onejob.wire.requests import DeleteOptions, Outcome, Target, WriteOptions

#: What etcd takes of one object.
MAX_OBJECT_BYTES: Final = 1536 * 1024

#: How often a generated name that is taken is thrown again.
_NAME_TRIES = 8

_NOTHING: Final[frozenset[str]] = frozenset()
_SPEC: Final = frozenset(("spec",))
_STATUS: Final = frozenset(("status",))
_SECTIONS: Final = frozenset(("metadata", "spec", "status"))
_OUTLINE: Final = frozenset(("apiVersion", "kind", "metadata", "spec"))
#: A new object gets its status from the server; what others send has to have the right shape.
_OUR_OUTLINE: Final = _OUTLINE | {"status"}

_encode = msgspec.json.encode
_decode: Callable[[bytes], Document] = msgspec.json.Decoder(dict[str, Any]).decode


class Writes(Struct, frozen=True):
    store: StagingStore
    strategies: Mapping[str, Strategy]
    schema: Schema
    clock: Clock
    rng: Random
    #: How the node enforces a securityContext.
    means: Means
    #: By resource: may this user make such an object of it? Raises Forbidden.
    guards: Mapping[str, Guard]
    created_specs: CreatedSpecs
    created_metadata: CreatedMetadatas
    #: What namespaces say about objects that come into them.
    admission: Admission
    #: Whether quotas are asked here; if not, then by whoever stages the write.
    asks_quotas: bool = True
    recent: RecentDocuments = msgspec.field(default_factory=RecentDocuments)

    # --- create ---------------------------------------------------------------------------

    def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str] = (),
        choose_node: ChooseNode | None = None,
    ) -> Outcome:
        """`choose_node` is given for Pods that may get their node as they are created."""
        check_type(kind, body)
        judged = None
        if kind.storage != PODS or not self.admission.changes_pods(namespace):
            judged = self.created_specs.judge(kind, body, trusted=options.trusted)
        if judged is not None and not problems and is_outlined(body, options):
            brought = self.created_metadata.judge(kind, namespace, body, trusted=options.trusted)
            if brought is not None:
                return self._create_known(kind, namespace, brought, judged, options, choose_node)
        known = _NOTHING if judged is None else _SPEC
        warnings: list[str] = []
        if not options.trusted:
            warnings = self.normalise(kind, body, options, problems, known=known)
        doc = ordered(kind, body)
        now = self.clock.now()
        prepare_created(kind, namespace, doc, now, self.rng, dry_run=options.dry_run)
        metadata = doc["metadata"]
        generates = not metadata.get("name") and bool(metadata.get("generateName"))
        if generates:
            metadata["name"] = self._free_name(kind, namespace, metadata["generateName"]).name
        # Without a name, what else is wrong is said too.
        name = metadata.get("name", "")
        self._require_namespace(kind, namespace, name)
        if judged is None:
            warnings += self._settle(kind, namespace, doc, options, now)
        else:
            warnings += self._settle_judged(kind, doc, judged, options, now)
        warnings += self.admission.review_create(kind, namespace, doc)
        key = key_at((kind.storage, namespace, name))
        if self.asks_quotas:
            self.admission.require_quota(key, doc, created=True)
        if not generates and self.store.newest(key) is not None:
            raise already_exists(kind.resource, name)
        largest = _largest(options)
        if options.dry_run:
            value = _bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, tuple(warnings))
        if choose_node is not None:
            place_created(doc, choose_node, now)
        stored = self.stage(key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, tuple(warnings))

    def _create_known(
        self,
        kind: Kind,
        namespace: str,
        brought: CreatedMetadata,
        judged: JudgedSpec,
        options: WriteOptions,
        choose_node: ChooseNode | None,
    ) -> Outcome:
        """An object whose sections were all found valid before."""
        created, own = judged.created, judged.own
        now = self.clock.now()
        metadata = brought.fields.copy()
        metadata["uid"] = new_uid(self.rng)
        metadata["creationTimestamp"] = timestamp(now)
        key = self._free_name(kind, namespace, brought.generate_name)
        metadata["name"] = key.name
        self._require_namespace(kind, namespace, key.name)
        if not options.trusted:
            spec_fields = created.owned_with(own)
            owned = {"f:spec": spec_fields, **brought.owned} if spec_fields else brought.owned
            entry = creation_entry(owned, options.field_manager, now, kind.api_version)
            metadata = Section(metadata)
            metadata["managedFields"] = msgspec.Raw(_encode([entry]))
        metadata["generation"] = created.generation
        doc = SectionedDocument(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": metadata,
                "spec": created.with_own(own) if own else created.spec,
                "status": created.status,
            }
        )
        warnings = created.warnings
        if kind.storage != PODS or self.admission.confines_pods(namespace, judged.text):
            warnings = (*warnings, *self.admission.review_create(kind, namespace, doc))
            if self.asks_quotas:
                self.admission.require_quota(key, doc, created=True)
        largest = sys.maxsize if options.trusted else MAX_OBJECT_BYTES
        if options.dry_run:
            value = _bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, warnings)
        if choose_node is not None:
            place_created(doc, choose_node, now)
        stored = self.stage(key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, warnings)

    def _settle(
        self, kind: Kind, namespace: str, doc: Document, options: WriteOptions, now: datetime
    ) -> list[str]:
        """Give a new object its defaults and what the server owns, and validate it. Returns what
        to warn of."""
        strategy = self.strategies[kind.resource]
        strategy.default(doc)
        if not options.trusted:
            # Before preparing: what the server makes up (a Job's selector) belongs to nobody.
            track_update(None, doc, options.field_manager, now, "", self._type(kind))
        self.admission.mutate(kind, namespace, doc)
        strategy.prepare_create(doc)
        errors = strategy.validate_create(doc)
        if errors:
            raise Invalid(kind.kind, kind.group, doc["metadata"].get("name", ""), errors)
        if guard := self.guards.get(kind.resource):
            guard(options.user, kind, namespace, doc, None)
        # Defaults run on every decode upstream, so the answer shows those that preparing made
        # possible (a Job without labels gets its template's).
        strategy.default(doc)
        if kind.subresource("status") is not None and not kind.custom:
            # Upstream's types always have one, so clients expect to find it.
            doc.setdefault("status", {})
        return [*strategy.warnings_on_create(doc), *security_warnings(kind, doc, self.means)]

    def _settle_judged(
        self,
        kind: Kind,
        doc: Document,
        judged: JudgedSpec,
        options: WriteOptions,
        now: datetime,
    ) -> list[str]:
        """The same for an object whose spec was found valid before: see `created_spec`."""
        created, own = judged.created, judged.own
        strategy = self.strategies[kind.resource]
        metadata = doc["metadata"]
        if not options.trusted:
            owned = all_fields({"metadata": metadata}, self._type(kind), "")
            if spec_fields := created.owned_with(own):
                owned = {"f:spec": spec_fields, **owned}
            entry = creation_entry(owned, options.field_manager, now, kind.api_version)
            # Encoded, because parts of it are; so the metadata is a section.
            metadata = doc["metadata"] = Section(metadata)
            metadata["managedFields"] = msgspec.Raw(_encode([entry]))
        doc["spec"] = created.with_own(own)
        if "status" in doc:
            # Behind the spec, wherever a body had one.
            del doc["status"]
        doc["status"] = created.status
        metadata["generation"] = created.generation
        errors = strategy.validate_new_metadata(doc)
        if errors:
            raise Invalid(kind.kind, kind.group, metadata.get("name", ""), errors)
        return [*strategy.name_warnings(metadata["name"]), *created.warnings]

    def _free_name(self, kind: Kind, namespace: str, prefix: str) -> Key:
        for _ in range(_NAME_TRIES):
            key = key_at((kind.storage, namespace, generated_name(prefix, self.rng)))
            if self.store.newest(key) is None:
                return key
        raise already_exists(kind.resource, key.name)

    def _require_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        stored = self.store.newest(key_at((NAMESPACES, "", namespace)))
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
        stored = self.store.newest(target.key)
        if stored is None:
            self.normalise(kind, body, options, problems)
            raise not_found(kind.resource, target.name)
        old = self._document(kind, stored)
        if not kind.custom:
            body = as_stored(body, old)
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
        # The rules of custom kinds are evaluated on plain values.
        old = _decode(stored.value) if kind.custom else self.recent.take(stored)
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
        touched = changed_members(patched, old)
        if not touched <= _SECTIONS or "metadata" not in patched or kind.custom:
            patched = ordered(kind, patched, old)
        if "metadata" in touched:
            metadata = held(patched, "metadata")
            if type(metadata) is not dict:
                metadata = metadata_of(patched)
            # A revision in the body makes the write a compare-and-swap.
            if metadata.get("resourceVersion", "") != str(stored.revision):
                _check_revision(target, metadata, stored)
        return self._replace(
            target, patched, old, touched, stored, options, warnings, patching=True
        )

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
        old = None if stored is None else self._document(kind, stored)
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
        _check_revision(target, metadata, stored)
        new = ordered(kind, new)
        touched = changed_members(new, old)
        return self._replace(
            target, new, old, touched, stored, options, warnings, patching=True, tracked=True
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
        touched: Set[str],
        stored: Stored,
        options: WriteOptions,
        warnings: Sequence[str],
        *,
        patching: bool,
        tracked: bool = False,
    ) -> Outcome:
        """Put `new` in the place of `old`, as far as this endpoint may change it. Only what is
        `touched` may differ. Rules about a section are asked only if the write touches it: what is
        stored was judged when it came in."""
        kind, subresource, trusted = target.kind, target.subresource, options.trusted
        strategy = self.strategies[kind.resource]
        #: One of our own reports: of everything else there is nothing to say.
        reports = trusted and subresource == "status" and touched <= _STATUS
        errors: list[FieldError] = []
        stored_metadata = held(old, "metadata")
        if type(stored_metadata) is msgspec.Raw:
            stored_metadata = old["metadata"]
        changed: Set[str] = _NOTHING
        if "metadata" in touched:
            metadata = held(new, "metadata")
            if type(metadata) is not dict:
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
            # What is shared with the stored document stays as it is.
            metadata = stored_metadata if reports else shallow(stored_metadata)
            new["metadata"] = metadata
        if "spec" in touched and "spec" in new:
            new["spec"] = copied(held(new, "spec"))
        # Whether there may be more to say than the rules of metadata and of status do.
        further = "spec" in touched or not strategy.judges_spec_alone
        if further and subresource != "finalize":
            strategy.default(new, old)
        if not trusted and not tracked:
            # Before preparing: what the server makes up belongs to nobody.
            now, manager = self.clock.now(), options.field_manager
            track_update(old, new, manager, now, subresource, self._type(kind))
        if subresource == "status":
            strategy.prepare_status_update(new, old)
            errors += strategy.validate_status_update(new, old)
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
        if further and not subresource:
            warnings = [*warnings, *self.admission.review_update(target, new, old)]
            if self.asks_quotas:
                self.admission.require_quota(stored.key, new, created=False)
        if reports and type(held(old, "status")) is not msgspec.Raw:
            same = held(new, "status") == held(old, "status")
        elif reports:
            same = new == old
        else:
            # `finalize` keeps the stored metadata.
            metadata = held(new, "metadata")
            metadata["resourceVersion"] = stored_metadata["resourceVersion"]
            same = new == old or (not trusted and _same_but_for_times(kind, new, old))
        if same:
            return Outcome(200, stored.value, stored.revision, tuple(warnings))
        # An object that was too large before the limit may still be changed, but not grow.
        largest = sys.maxsize if trusted else max(MAX_OBJECT_BYTES, len(stored.value))
        if options.dry_run:
            value = _bounded(_encode(new), largest)
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
        return stored, self._document(target.kind, stored)

    def stage(
        self,
        key: Key,
        expected: int,
        doc: Document,
        largest: int = sys.maxsize,
        *,
        quiet: bool = False,
    ) -> Stored:
        """Raises RequestTooLarge for a document of more than `largest` bytes. The revision is
        written into the document."""
        metadata = held(doc, "metadata")
        if type(metadata) is msgspec.Raw:
            metadata = doc["metadata"]

        def encode(revision: int) -> bytes:
            metadata["resourceVersion"] = str(revision)
            value = _encode(doc)
            return value if len(value) <= largest else _bounded(value, largest)

        cold = is_cold(key.resource, metadata, doc)
        staged = self.store.stage(key, expected, encode, cold=cold, quiet=quiet)
        assert staged is not None, "only a deletion leaves nothing behind"
        if (
            not cold
            and isinstance(doc, SectionedDocument)
            and self.strategies[key.resource].keeps_documents
        ):
            self.recent.keep(staged, doc)
        return staged

    def _document(self, kind: Kind, stored: Stored) -> Document:
        # The rules of custom kinds are evaluated on plain values.
        return _decode(stored.value) if kind.custom else self.recent.take(stored)

    def _type(self, kind: Kind) -> Type:
        return self.schema.kind(kind.api_version, kind.kind)

    def normalise(
        self,
        kind: Kind,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str],
        *,
        old: Document | None = None,
        known: frozenset[str] = _NOTHING,
    ) -> list[str]:
        """Prune the body to the schema; what was wrong becomes an error, warnings or nothing. What
        is `known` to be in order, or stored like that, is not looked at."""
        if options.trusted:
            return []
        found = all_problems(self._pruned(kind, body, old, known), problems)
        return _judge(
            found,
            options,
            lambda text: BadRequest(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"strict decoding error: {text}"
            ),
        )

    def _pruned(
        self, kind: Kind, body: Document, old: Document | None, known: frozenset[str] = _NOTHING
    ) -> list[str]:
        """What was found wrong in those sections of `body` that are new."""
        type_ = self._type(kind)
        part = {
            name: plain(value)
            for name, value in members(body)
            # A field with two names is looked at under both.
            if type_.aliases
            or not (
                name in known
                or (old is not None and (held(old, name) is value or same_bytes(body, old, name)))
            )
        }
        names = list(part)
        found = self.schema.normalise(part, type_)
        for name in names:
            if name not in part:
                del body[name]
        body.update(part)
        return found

    def _normalise_patched(
        self,
        kind: Kind,
        new: Document,
        old: Document,
        options: WriteOptions,
        problems: Sequence[str],
    ) -> list[str]:
        try:
            found = all_problems(self._pruned(kind, new, old), problems)
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


def _check_revision(target: Target, metadata: Document, stored: Stored) -> None:
    """A revision in the body makes the write a compare-and-swap."""
    given = metadata.get("resourceVersion", "")
    if given and given != str(stored.revision):
        raise conflict(target.kind.resource, target.name)


def is_outlined(body: Document, options: WriteOptions) -> bool:
    """Whether there is nothing in a new object that needs a look besides metadata and spec."""
    return names(body) <= (_OUR_OUTLINE if options.trusted else _OUTLINE)


def is_cold(resource: str, metadata: Document, doc: Document) -> bool:
    """Whether this version will rarely be read again, so that it need not stay in memory."""
    match resource:
        case "pods":
            if "finalizers" in metadata:
                return False
            status = held(doc, "status", {})
            if type(status) is msgspec.Raw:
                status = doc["status"]
            return text_of(status, "phase") in ("Succeeded", "Failed")
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


def _same_but_for_times(kind: Kind, new: Document, old: Document) -> bool:
    """Whether nothing changed but the shape of empties and the times in managedFields."""
    # Custom kinds have no Go type that drops what is empty: `{}` is not the same as nothing.
    same = operator.eq if kind.custom else semantically_equal
    return all(
        same_bytes(new, old, name) or same(new.get(name), old.get(name))
        for name in new.keys() | old.keys()
        if name != "metadata"
    ) and same(_without_times(new["metadata"]), _without_times(old["metadata"]))


def _without_times(metadata: Document) -> Document:
    entries = metadata.get("managedFields")
    if not entries:
        return metadata
    timeless = [{k: v for k, v in entry.items() if k != "time"} for entry in entries]
    return {**metadata, "managedFields": timeless}


def begins_to_run(key: Key, new: Document, old: Document) -> bool:
    """Nobody needs to act at once when a Pod has begun to run: it is shown among those that are
    ready, and no more."""
    if key.resource != PODS:
        return False
    after, before = held(new, "status", {}), held(old, "status", {})
    if type(after) is msgspec.Raw or type(before) is msgspec.Raw:
        after, before = new["status"], old["status"]
    return bool(text_of(after, "phase") == "Running" != text_of(before, "phase"))


def as_stored(body: Document, old: Document) -> Document:
    """A body whose sections are taken from the stored object where they say the same in the same
    words, so that they need no further look."""
    if not isinstance(body, SectionedDocument):
        body = SectionedDocument(body)
    for name, value in list(members(body)):
        stored = held(old, name)
        if (
            type(stored) is msgspec.Raw
            and isinstance(value, dict)
            and _encode(value) == bytes(stored)
        ):
            body[name] = stored
    return body


def _only_spec_finalizers(new: Document, old: Document) -> None:
    finalizers = new.get("spec", {}).get("finalizers", [])
    new["metadata"] = dict(old["metadata"])
    for name in list(new):
        if name not in ("apiVersion", "kind", "metadata", "spec"):
            del new[name]
    new["spec"] = {**old.get("spec", {}), "finalizers": finalizers}
    if "status" in old:
        new["status"] = old["status"]
