"""Replacement of the revision in an encoded document, without decoding it."""

import msgspec
import pytest

from onejob.api.documents import at_revision


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"resourceVersion": "7"},
        {"resourceVersion": "77"},
        {"quoted": '"resourceVersion":"7"'},
    ],
)
@pytest.mark.parametrize("labels_first", [True, False])
def test_only_the_documents_own_revision_is_replaced(
    labels: dict[str, str], labels_first: bool
) -> None:
    members = [("labels", labels), ("resourceVersion", "7")]
    metadata = dict(members if labels_first else reversed(members))
    document = msgspec.json.encode({"kind": "Pod", "metadata": metadata, "status": {}})
    metadata["resourceVersion"] = "1234"
    expected = msgspec.json.encode({"kind": "Pod", "metadata": metadata, "status": {}})
    assert at_revision(document, 7, 1234) == expected
