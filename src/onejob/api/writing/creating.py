"""Create requests: validate, default, admit and stage a new object."""

from collections.abc import Sequence
from datetime import datetime
from random import Random
from typing import Final

import msgspec
from msgspec.structs import replace

from onejob.api.admission.dynamic.plugins import Reviewer
from onejob.api.audit_notes import noted
from onejob.api.documents import decode
from onejob.api.security_warnings import gang_warnings, security_warnings
from onejob.api.strategy import Document
from onejob.api.writing.context import WriteContext, bounded, largest_size
from onejob.api.writing.managed_fields import track_update
from onejob.api.writing.metadata import (
    check_namespace,
    check_type,
    drop_empty,
    generated_name,
    metadata_of,
    new_uid,
    ordered,
    prepare_created,
    timestamp,
)
from onejob.api.writing.templates import Around, Creation, Template, evaluated_template
from onejob.objects.meta import NAMESPACES, PODS, Key, key_at
from onejob.store.base import DamagedDocument, RevisionMismatch
from onejob.wire.errors import (
    ApiError,
    Forbidden,
    Invalid,
    already_exists,
    not_found,
)
from onejob.wire.kinds import BY_RESOURCE, Kind
from onejob.wire.requests import Outcome, Target, Variation, WriteOptions, Written

#: Attempts to generate a name that is not in use.
_NAME_TRIES: Final = 8
_PODS: Final = BY_RESOURCE[PODS]
#: Maximum number of cached templates, and bytes of the document of one; one Job mostly has one.
_CACHED_TEMPLATES: Final = 64
_MAX_CACHED_BYTES: Final = 16 * 1024

_encode = msgspec.json.encode


class Creates(WriteContext, frozen=True):
    """Create requests."""

    def create(
        self,
        kind: Kind,
        namespace: str,
        body: Document,
        options: WriteOptions,
        problems: Sequence[str] = (),
    ) -> Outcome:
        """Stage a new object and return the outcome with code 201.

        `problems` were found in decoding the body.
        """
        check_type(kind, body)
        warnings = self.normalise(kind, body, options, problems)
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
        warnings += self._settle(kind, namespace, doc, options, now, generated=generates)
        # A webhook may have changed it.
        name = doc["metadata"].get("name", "")
        key = key_at((kind.storage, namespace, name))
        assigned = self.reviewer is not None
        warnings += self.admission.review_create(kind, namespace, doc, assigned=assigned)
        if self.reviewer is not None:
            self.reviewer.validated("CREATE", Target(kind, namespace, name), doc, None)
        if self.asks_quotas:
            self.admission.require_quota(key, doc, created=True)
        if not generates and self.store.newest(key) is not None:
            raise already_exists(kind.resource, name)
        largest = largest_size(options)
        if options.dry_run:
            value = bounded(_encode(doc), largest)
            return Outcome(201, value, self.store.revision, tuple(warnings))
        stored = self.stage(key, 0, doc, largest)
        return Outcome(201, stored.value, stored.revision, tuple(warnings))

    def create_pods(
        self, creations: Sequence[Creation], options: WriteOptions
    ) -> list[Written | ApiError | DamagedDocument]:
        """Stage new Pods for one of onejob's own writers.

        Equal to `create` for each of them, except that Pods which fit onto the server's node at
        once are assigned to it. Returns one result each, in order.
        """
        results: list[Written | ApiError | DamagedDocument] = []
        batch = _Batch(timestamp(self.clock.now()))
        for creation in creations:
            try:
                if not batch.covers(creation):
                    batch.change(creation, self._template(creation, options))
                if batch.template is None:
                    body = decode(creation.document)
                    outcome = self.create(_PODS, creation.namespace, body, options)
                    results.append(Written(outcome.revision, outcome.document))
                else:
                    results.append(self._create_pod(batch, batch.template, creation))
            except (ApiError, DamagedDocument) as error:
                results.append(error)
        return results

    def _template(self, creation: Creation, options: WriteOptions) -> Template | None:
        """Return the template of a Pod, which is evaluated if it is not cached.

        None for a Pod with a name of its own, which occurs only once, and for a body that only a
        dry run accepts.
        """
        namespace = creation.namespace
        place = (namespace, creation.body)
        # Each audited request has the annotations of its own evaluation.
        template = None if noted() else self.templates.get(place)
        if template is None or not template.covers(creation.variation, self.admission.generation):
            body = decode(creation.document)
            metadata = metadata_of(body)
            if metadata.get("name") or metadata.get("resourceVersion"):
                return None
            # A dry run with random numbers of its own, because its name and UID are not used.
            alone = replace(self, rng=Random(0))
            rehearsal = replace(options, dry_run=True)
            outcome = alone.create(_PODS, namespace, body, rehearsal)
            template = evaluated_template(outcome, creation.variation, self.admission.generation)
            if len(creation.body) <= _MAX_CACHED_BYTES:
                if len(self.templates) >= _CACHED_TEMPLATES:
                    del self.templates[next(iter(self.templates))]
                self.templates[place] = template
        return template

    def _create_pod(self, batch: "_Batch", template: Template, creation: Creation) -> Written:
        """Stage one Pod of a template, under a name that is not in use."""
        admission, variation = self.admission, creation.variation
        room = admission.room
        demand = None if room is None else room.demand_if_free(template.spec)
        node = "" if room is None or demand is None else room.node.name
        around = batch.around(template, variation, node)
        prefix = template.generate_name if variation is None else variation.generate_name
        uid = new_uid(self.rng)
        for _ in range(_NAME_TRIES):
            name = generated_name(prefix, self.rng)
            key = key_at((PODS, creation.namespace, name))
            if self.asks_quotas:
                admission.require_quota(key, template.document, created=True)
            write = around.of(name, uid, batch.now)
            try:
                stored = self.store.stage(key, 0, write.at, tail=write.tail)
            except RevisionMismatch:
                continue
            assert stored is not None, "only a deletion leaves nothing behind"
            if room is not None and demand is not None:
                room.reserve(uid, demand, stored.revision)
            return Written(stored.revision, stored.value, name)
        raise already_exists(PODS, name)

    def _settle(
        self,
        kind: Kind,
        namespace: str,
        doc: Document,
        options: WriteOptions,
        now: datetime,
        *,
        generated: bool,
    ) -> list[str]:
        """Default a new object, set its server-owned fields and validate it; return warnings.

        `generated` is true if its name was generated. Raises Invalid, or Forbidden from a guard.
        """
        strategy = self.strategies[kind.resource]
        strategy.default(doc)
        if not options.trusted:
            # Before `prepare_create`: generated fields (a Job's selector) have no owner.
            track_update(None, doc, options.field_manager, now, "", self.type_of(kind))
        self.admission.mutate(kind, namespace, doc)
        if self.reviewer is not None:
            self.admission.assign(kind, namespace, doc)
            self._mutate(self.reviewer, kind, namespace, doc, generated=generated)
        dropped = gang_warnings(kind, doc, self.means)
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
        return [
            *strategy.warnings_on_create(doc),
            *dropped,
            *security_warnings(kind, doc, self.means),
        ]

    def _mutate(
        self, reviewer: Reviewer, kind: Kind, namespace: str, doc: Document, *, generated: bool
    ) -> None:
        """Apply mutating policies and webhooks to a new object, in place.

        As upstream, they do not see fields that are set after them: UID, time and generated name.
        """
        own = doc["metadata"]
        later = ("uid", "creationTimestamp", "name") if generated else ("uid", "creationTimestamp")
        shown = {name: value for name, value in own.items() if name not in later}
        target = Target(kind, namespace, shown.get("name", ""))
        settle = self.settle_mutated(kind)
        mutated = reviewer.mutated("CREATE", target, {**doc, "metadata": shown}, None, settle)
        if mutated is None:
            return
        metadata = metadata_of(mutated)
        check_namespace(kind, namespace, metadata)
        for name in later:
            if name != "name" or not metadata.get("name"):
                metadata[name] = own[name]
        drop_empty(metadata)
        doc.clear()
        doc.update(mutated)

    def _free_name(self, kind: Kind, namespace: str, prefix: str) -> Key:
        """Return an unused key with a generated name. Raises AlreadyExists after several tries."""
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
            and "deletionTimestamp" in decode(stored.value)["metadata"]
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


class _Batch:
    """Encoded parts shared by Pods that are created together."""

    def __init__(self, now: str) -> None:
        self.now = now
        self.template: Template | None = None
        self._creation: Creation | None = None
        #: Whether one evaluation serves several Pods.
        self._shares = not noted()
        #: By node, for the template.
        self._around: dict[str, Around] = {}

    def covers(self, creation: Creation) -> bool:
        """Return whether `template` is that of this Pod."""
        last, template, variation = self._creation, self.template, creation.variation
        return (
            last is not None
            and template is not None
            and last.body is creation.body
            and last.namespace == creation.namespace
            and self._shares
            and (variation is None or len(variation.hostname) <= template.longest_hostname)
        )

    def change(self, creation: Creation, template: Template | None) -> None:
        """Continue with a Pod of another template."""
        self._creation, self.template, self._around = creation, template, {}

    def around(self, template: Template, variation: Variation | None, node: str) -> Around:
        """Return the encoded parts of a Pod on a node, or of an unassigned one if `node` is ""."""
        if node not in self._around:
            sections = (template.spec, template.status)
            if node:
                sections = template.assigned(node, self.now)
            self._around[node] = template.around(None, sections)
        around = self._around[node]
        return around if variation is None else template.around(variation, around.sections)
