"""Content negotiation by the Accept header."""

import pytest

from onejob.api.http.negotiation import Representation, aggregated_discovery_version, negotiate
from onejob.wire.errors import NotAcceptable

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Representation()),
        ("*/*", Representation()),
        ("application/*", Representation()),
        ("application/json, */*", Representation()),
        ("application/vnd.kubernetes.protobuf,application/json", Representation()),
        ("application/yaml", Representation("yaml")),
        ("application/yaml;q=0.5, application/json", Representation("json")),
        (
            f"{TABLE},application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json",
            Representation("json", "Table"),
        ),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json", Representation()),
        ("application/json;as=Nope;v=v1;g=meta.k8s.io, application/yaml", Representation("yaml")),
        (
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json",
            Representation("json", "PartialObjectMetadata"),
        ),
        ("application/json; charset=utf-8", Representation()),
        ("application/vnd.kubernetes.protobuf", Representation("protobuf")),
        ("application/vnd.kubernetes.protobuf, */*", Representation()),
    ],
)
def test_the_best_form_we_have_is_served(accept: str, expected: Representation) -> None:
    assert negotiate(accept) == expected


@pytest.mark.parametrize(
    "accept",
    [
        "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        "text/html",
        "application/json;q=0",
        "application/json;as=Nope;v=v1;g=meta.k8s.io",
        ";;,,",
    ],
)
def test_anything_else_is_not_acceptable(accept: str) -> None:
    with pytest.raises(NotAcceptable, match="only the following media types are accepted"):
        negotiate(accept)


def test_kind_without_table_is_served_in_next_accepted_form() -> None:
    with pytest.raises(NotAcceptable):
        negotiate(TABLE, tables=False)
    assert negotiate(f"{TABLE},application/json", tables=False) == Representation()
    partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
    assert negotiate(partial, tables=False).form == "PartialObjectMetadata"


def test_yaml_is_not_streamed() -> None:
    with pytest.raises(NotAcceptable):
        negotiate("application/yaml", watch=True)
    assert negotiate("application/yaml, */*;q=0.1", watch=True) == Representation()


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,*/*", "v2"),
        (
            "application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList,"
            "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
            "application/json",
            "v2beta1",
        ),
        ("application/json", ""),
        ("", ""),
        (
            "application/json,application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            "",
        ),
    ],
)
def test_aggregated_discovery_is_served_if_preferred(accept: str, version: str) -> None:
    assert aggregated_discovery_version(accept) == version
