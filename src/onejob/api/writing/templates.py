"""Creation of many objects from one template.

The Pods of a Job differ only in their names, UIDs and, for an Indexed Job, in a few fields that
contain the index. A template is the result of one complete create request that was not staged; the
objects made from it repeat that result with their own fields. So there is one set of rules, and it
runs once per template instead of once per object.
"""

from collections.abc import Mapping
from typing import Any, Final, Protocol

import msgspec

from onejob.api.documents import decode
from onejob.api.strategy import Document
from onejob.api.writing.placing import assign
from onejob.api.writing.section_patches import SectionWrite
from onejob.wire.requests import Outcome, Variation

_encode = msgspec.json.encode

#: Metadata that differs between the objects of a template.
_OWN_METADATA: Final = ("name", "uid", "creationTimestamp", "generateName")
#: Metadata to which a variation adds.
_VARIED_METADATA: Final = ("labels", "annotations")


class Creation(Protocol):
    """A create request for one of many objects with the same template."""

    @property
    def namespace(self) -> str: ...

    @property
    def body(self) -> bytes:
        """Document shared by all objects of the template."""
        ...

    @property
    def variation(self) -> Variation | None:
        """How the object differs from the template; None if it is created on its own."""

    @property
    def document(self) -> bytes:
        """`body` with the variation."""
        ...


class Around(msgspec.Struct, frozen=True):
    """Encoded parts of an object, between which its own fields are put."""

    #: Everything up to the value of the name.
    head: bytes
    #: Everything after the value of the resourceVersion.
    rest: bytes
    #: Spec and status.
    sections: tuple[bytes, bytes]
    tail: tuple[int, int]

    def of(self, name: str, uid: str, now: str) -> SectionWrite:
        """Return the write of one object."""
        own = f'{name}","uid":"{uid}","creationTimestamp":"{now}",'
        return SectionWrite(self.head + own.encode(), self.rest, tail=self.tail)


class Template(msgspec.Struct, frozen=True):
    """Result of a create request, to be repeated for further objects.

    Valid as long as `Admission.generation` is unchanged: it depends on policies and on the
    namespace.
    """

    generation: int
    generate_name: str
    #: Encoded members of the metadata that all objects share.
    metadata: bytes
    varied_metadata: Mapping[str, Mapping[str, str]]
    spec: bytes
    status: bytes
    #: The same as plain values; not to be modified.
    document: Document
    #: Length of the longest hostname that was validated.
    longest_hostname: int

    def around(self, variation: Variation | None, sections: tuple[bytes, bytes]) -> Around:
        """Return the parts of an object with these sections."""
        spec, status = sections
        if variation is not None and variation.hostname:
            spec = b'{"hostname":%b,%b' % (_encode(variation.hostname), spec[1:])
        rest = b'},"spec":%b,"status":%b}' % (spec, status)
        return Around(self._head(variation), rest, sections, (len(spec), len(status)))

    def _head(self, variation: Variation | None) -> bytes:
        """Return the encoded object up to the value of its name."""
        generate_name, varied = self.generate_name, self.varied_metadata
        if variation is not None:
            generate_name = variation.generate_name
            varied = {
                "labels": {**varied.get("labels", {}), **variation.labels},
                "annotations": {**varied.get("annotations", {}), **variation.annotations},
            }
        own: dict[str, Any] = {"generateName": generate_name, **varied}
        return b'{"apiVersion":"v1","kind":"Pod","metadata":{%b,%b,"name":"' % (
            _members(own),
            self.metadata,
        )

    def assigned(self, node: str, now: str) -> tuple[bytes, bytes]:
        """Return spec and status of an object that is assigned to a node."""
        pod = {**self.document}
        assign(pod, node, now)
        return _encode(pod["spec"]), _encode(pod["status"])

    def covers(self, variation: Variation | None, generation: int) -> bool:
        """Return whether the template is still valid, and valid for this variation."""
        return self.generation == generation and (
            variation is None or len(variation.hostname) <= self.longest_hostname
        )


def evaluated_template(outcome: Outcome, variation: Variation | None, generation: int) -> Template:
    """Return the template with the result of a create request."""
    document = decode(outcome.document)
    metadata, spec = document["metadata"], document["spec"]
    varied = {name: metadata.get(name, {}) for name in _VARIED_METADATA if name in metadata}
    if variation is not None:
        varied = {
            "labels": _without(metadata.get("labels", {}), variation.labels),
            "annotations": _without(metadata.get("annotations", {}), variation.annotations),
        }
        spec.pop("hostname", None)
    shared = {
        name: value
        for name, value in metadata.items()
        if name not in _OWN_METADATA and name not in _VARIED_METADATA
    }
    return Template(
        generation,
        metadata["generateName"],
        _members(shared),
        varied,
        _encode(spec),
        _encode(document["status"]),
        document,
        0 if variation is None else len(variation.hostname),
    )


def _without(values: Mapping[str, str], unwanted: Mapping[str, str]) -> dict[str, str]:
    """Return the entries whose names are not in `unwanted`."""
    return {name: value for name, value in values.items() if name not in unwanted}


def _members(values: Mapping[str, Any]) -> bytes:
    """Return the JSON object without its braces."""
    return _encode(values)[1:-1]
