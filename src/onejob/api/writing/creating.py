"""Create requests: validate, default, admit and stage a new object."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from onejob.api.sections import (
    Section,
    SectionedDocument,
    names,
)
from onejob.api.security_warnings import security_warnings
from onejob.api.strategy import Document
from onejob.api.writing.context import NOTHING, WriteContext, bounded, largest_size
from onejob.api.writing.created_spec import JudgedSpec
from onejob.api.writing.known_creations import KnownCreation
from onejob.api.writing.managed_fields import all_fields, creation_entry, track_update
from onejob.api.writing.metadata import (
    check_type,
    generated_name,
    new_uid,
    ordered,
    prepare_created,
    timestamp,
)
from onejob.api.writing.placing import ChooseNode, place_created
from onejob.objects.meta import NAMESPACES, PODS, Key, key_at
from onejob.wire.errors import (
    Forbidden,
    Invalid,
    already_exists,
    not_found,
)
from onejob.wire.kinds import Kind
from onejob.wire.requests import Outcome, WriteOptions

#: Attempts to generate a name that is not in use.
_NAME_TRIES: Final = 8

_SPEC: Final = frozenset(("spec",))
_OUTLINE: Final = frozenset(("apiVersion", "kind", "metadata", "spec"))
#: The server sets the status of a new object and drops the one in the body; that of clients must
#: still conform to the schema, so only onejob's own writers may skip the check.
_OUR_OUTLINE: Final = _OUTLINE | {"status"}

_encode = msgspec.json.encode
_decode: Callable[[bytes], Document] = msgspec.json.Decoder(dict[str, Any]).decode


class Creates(WriteContext, frozen=True):
    def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str] = (),
        choose_node: ChooseNode | None = None,
    ) -> Outcome:
        """Stage a new object and return the outcome with code 201.

        `problems` were found in decoding the body. `choose_node` is given for Pods that may be
        assigned to a node by the write that creates them.
        """
        known_creation = self.known_creations.find(
            kind, namespace, body, options, self.admission.generation
        )
        if known_creation is not None:
            return self._create_known(known_creation, choose_node)
        check_type(kind, body)
        judged = None
        if kind.storage != PODS or not self.admission.changes_pods(namespace):
            judged = self.created_specs.judge(kind, body, trusted=options.trusted)
        if judged is not None and not problems and is_outlined(body, options):
            brought = self.created_metadata.judge(kind, namespace, body, trusted=options.trusted)
            if brought is not None:
                creation = KnownCreation(
                    kind, namespace, options, brought, judged, self.admission.generation
                )
                return self._create_known(creation, choose_node, body)
        known = NOTHING if judged is None else _SPEC
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
        # A missing name is not reported here but by validation, together with all other errors.
        name = metadata.get("name", "")
        self._require_namespace(kind, namespace, name)
        if judged is None:
            warnings += self._settle(kind, namespace, doc, options, now)
        else:
            warnings += self._settle_judged(kind, doc, judged, options, now)
        key = key_at((kind.storage, namespace, name))
        if judged is None or self._confines(kind, namespace, judged):
            warnings += self.admission.review_create(kind, namespace, doc)
            if self.asks_quotas:
                self.admission.require_quota(key, doc, created=True)
        if not generates and self.store.newest(key) is not None:
            raise already_exists(kind.resource, name)
        largest = largest_size(options)
        if options.dry_run:
            value = bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, tuple(warnings))
        if choose_node is not None:
            place_created(doc, choose_node, timestamp(now))
        stored = self.stage(key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, tuple(warnings))

    def _create_known(
        self,
        creation: KnownCreation,
        choose_node: ChooseNode | None,
        body: Document | None = None,
    ) -> Outcome:
        """Create an object from sections that are known to be valid.

        If `body` is given, existence and policies of the namespace are checked as well.
        """
        kind, namespace, options = creation.kind, creation.namespace, creation.options
        brought, created, own = creation.brought, creation.judged.created, creation.judged.own
        now = self.clock.now()
        created_at = timestamp(now)
        metadata = brought.fields.copy()
        metadata["uid"] = new_uid(self.rng)
        metadata["creationTimestamp"] = created_at
        key = self._free_name(kind, namespace, brought.generate_name)
        metadata["name"] = key.name
        if not options.trusted:
            spec_fields = created.owned_with(own)
            owned = {"f:spec": spec_fields, **brought.owned} if spec_fields else brought.owned
            entry = creation_entry(owned, options.field_manager, now, kind.api_version)
            metadata = Section(metadata)
            metadata["managedFields"] = msgspec.Raw(_encode([entry]))
        metadata["generation"] = created.generation
        spec = created.spec if not own else created.with_own(own)
        doc = SectionedDocument(
            {
                "apiVersion": kind.api_version,
                "kind": kind.kind,
                "metadata": metadata,
                "spec": spec,
                "status": created.status,
            }
        )
        warnings = created.warnings
        if body is not None and self._is_confined(creation, body, key.name):
            warnings = (*warnings, *self.admission.review_create(kind, namespace, doc))
            if self.asks_quotas:
                self.admission.require_quota(key, doc, created=True)
        largest = largest_size(options)
        if options.dry_run:
            value = bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, warnings)
        if choose_node is not None:
            place_created(doc, choose_node, created_at, b"" if own else created.text)
        stored = self.stage(key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, warnings)

    def _is_confined(self, creation: KnownCreation, body: Document, name: str) -> bool:
        """Return whether namespace policies apply to the object.

        If none apply, a creation by onejob's own writers is cached for the next equal body. Raises
        NotFound or Forbidden if the namespace is missing or terminating.
        """
        kind, namespace = creation.kind, creation.namespace
        self._require_namespace(kind, namespace, name)
        if self._confines(kind, namespace, creation.judged):
            return True
        if creation.options.trusted:
            self.known_creations.keep(body, creation)
        return False

    def _confines(self, kind: Kind, namespace: str, judged: JudgedSpec) -> bool:
        """Return whether policies of the namespace apply to an object with this spec."""
        return kind.storage != PODS or self.admission.confines_pods(namespace, judged.text)

    def _settle(
        self, kind: Kind, namespace: str, doc: Document, options: WriteOptions, now: datetime
    ) -> list[str]:
        """Default a new object, set its server-owned fields and validate it; return warnings.

        Raises Invalid, or Forbidden from a guard.
        """
        strategy = self.strategies[kind.resource]
        strategy.default(doc)
        if not options.trusted:
            # Before `prepare_create`: generated fields (a Job's selector) have no owner.
            track_update(None, doc, options.field_manager, now, "", self.type_of(kind))
        self.admission.mutate(kind, namespace, doc)
        strategy.prepare_create(doc)
        errors = strategy.validate_create(doc)
        if errors:
            raise Invalid(kind.kind, kind.group, doc["metadata"].get("name", ""), errors)
        if guard := self.guards.get(kind.resource):
            guard(options.user, kind, namespace, doc, None)
        # Upstream runs defaults on every decode, so its response includes defaults that depend on
        # prepared fields (a Job without labels gets its template's).
        strategy.default(doc)
        if kind.subresource("status") is not None and not kind.custom:
            # Upstream's types always have a status, so clients expect one.
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
        """Do the same as `_settle` for an object with a cached valid spec; see `created_spec`."""
        created, own = judged.created, judged.own
        strategy = self.strategies[kind.resource]
        metadata = doc["metadata"]
        if not options.trusted:
            owned = all_fields({"metadata": metadata}, self.type_of(kind), "")
            if spec_fields := created.owned_with(own):
                owned = {"f:spec": spec_fields, **owned}
            entry = creation_entry(owned, options.field_manager, now, kind.api_version)
            # Parts of the entry are encoded, so it is encoded too, and metadata becomes a Section.
            metadata = doc["metadata"] = Section(metadata)
            metadata["managedFields"] = msgspec.Raw(_encode([entry]))
        doc["spec"] = created.with_own(own)
        if "status" in doc:
            # Reinserted below, so that the status follows the spec whatever the body's order.
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


def is_outlined(body: Document, options: WriteOptions) -> bool:
    """Return whether no members of a new object besides metadata and spec need validation."""
    return names(body) <= (_OUR_OUTLINE if options.trusted else _OUTLINE)
