"""Content negotiation by Accept header. Pure functions.

Objects are served as JSON or YAML, and also as Table rows, as metadata only and, for discovery, as
one aggregated document. Protobuf is served only to clients that accept nothing else: it must be
encoded, while JSON is sent as stored, and clients that prefer protobuf read both.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from onejob.api.short_cache import short_cache
from onejob.wire.errors import NotAcceptable

Media = Literal["json", "yaml", "protobuf"]
Form = Literal["", "Table", "PartialObjectMetadata", "PartialObjectMetadataList"]

_JSON_RANGES: Final = frozenset(("application/json", "application/*", "*/*"))
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_OPENAPI_V2_PROTOBUF: Final = (
    "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
    "application/com.github.proto-openapi.spec.v2.v1.0+protobuf",
)
_FORMS: Final = {
    form: form for form in ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
}


_CONTENT_TYPES: Final[Mapping[Media, bytes]] = {
    "json": b"application/json",
    "yaml": b"application/yaml",
    "protobuf": _PROTOBUF.encode(),
}


@dataclass(frozen=True, slots=True)
class Representation:
    """Representation of a response: media type and form of the objects."""

    media: Media = "json"
    form: Form = ""

    @property
    def content_type(self) -> bytes:
        return _CONTENT_TYPES[self.media]


JSON: Final = Representation()


@short_cache(256)
def negotiate(accept: str, *, watch: bool = False, tables: bool = True) -> Representation:
    """Return the best supported representation.

    `tables` is false for objects that cannot be read again, such as reviews. Raises NotAcceptable.
    """
    if not accept:
        return JSON
    clauses = _clauses(accept)
    for media, parameters in clauses:
        wanted = _representation(media, parameters)
        if wanted is None or (wanted.form == "Table" and not tables):
            continue
        # A YAML stream cannot be split into events, so watches do not support it.
        if not (watch and wanted.media == "yaml"):
            return wanted
    if any(media == _PROTOBUF and "as" not in parameters for media, parameters in clauses):
        return Representation("protobuf")
    served = ("application/json", *(() if watch else ("application/yaml",)), _PROTOBUF)
    raise NotAcceptable(f"only the following media types are accepted: {', '.join(served)}")


@short_cache(64)
def aggregated_discovery_version(accept: str) -> str:
    """Return the version of aggregated discovery that the client prefers: v2, v2beta1 or ""."""
    for media, parameters in _clauses(accept):
        if media not in _JSON_RANGES:
            continue
        if parameters.get("as") != "APIGroupDiscoveryList":
            return ""
        version = parameters.get("v", "")
        if parameters.get("g") == "apidiscovery.k8s.io" and version in ("v2", "v2beta1"):
            return version
    return ""


@short_cache(64)
def prefers_protobuf_openapi(accept: str) -> bool:
    """Return whether the client prefers the OpenAPI v2 document as protobuf.

    Raises NotAcceptable if it accepts neither protobuf nor JSON.
    """
    for media, _ in _clauses(accept):
        if media in _OPENAPI_V2_PROTOBUF:
            return True
        if media in _JSON_RANGES:
            return False
    if accept:
        raise NotAcceptable(
            "only the following media types are accepted: application/json, "
            + ", ".join(_OPENAPI_V2_PROTOBUF)
        )
    return False


def _representation(media: str, parameters: dict[str, str]) -> Representation | None:
    """Return the representation of a media range; None if it is not supported."""
    form: Form = ""
    if "as" in parameters:
        if (parameters.get("g"), parameters.get("v")) != ("meta.k8s.io", "v1"):
            return None
        known = _FORMS.get(parameters["as"])
        if known is None:
            return None
        form = known  # type: ignore[assignment]
    if media in _JSON_RANGES:
        return Representation("json", form)
    if media == "application/yaml":
        return Representation("yaml", form)
    return None


def _clauses(accept: str) -> list[tuple[str, dict[str, str]]]:
    """Return the alternatives of an Accept header, best first."""
    weighted: list[tuple[float, str, dict[str, str]]] = []
    for clause in accept.split(","):
        media, *rest = (piece.strip() for piece in clause.split(";"))
        parameters = {}
        for piece in rest:
            name, _, value = piece.partition("=")
            parameters[name.strip().lower()] = value.strip().strip('"')
        quality = _quality(parameters.pop("q", "1"))
        if media and quality > 0:
            weighted.append((quality, media.lower(), parameters))
    weighted.sort(key=lambda entry: -entry[0])
    return [(media, parameters) for _, media, parameters in weighted]


def _quality(text: str) -> float:
    """Return a quality value; 0 if it is malformed."""
    try:
        return float(text)
    except ValueError:
        return 0.0
