"""Documents on stdout: JSON, YAML or names."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from onejob.cli.known_kinds import BUILT_IN
from onejob.cli.resource_args import ResourceArg
from onejob.wire.kinds import Kind

_ESCAPED: Final = {code: f"\\u{code:04x}" for code in range(0x7F, 0xA0)}


def print_documents(
    documents: Sequence[dict[str, Any]], output: str, *, as_list: bool = False
) -> None:
    """Print documents; several become one `List`, as in kubectl."""
    if output == "name":
        for document in documents:
            print(resource_name(document))
        return
    print(rendered(whole_document(documents, as_list=as_list), output), end="")


def whole_document(documents: Sequence[dict[str, Any]], *, as_list: bool) -> dict[str, Any]:
    """Return the only document, or a `List` of them."""
    return documents[0] if len(documents) == 1 and not as_list else _list_of(documents)


def rendered(document: Any, output: str) -> str:
    """Return the document as YAML or JSON text."""
    if output == "yaml":
        from onejob.cli.yaml_text import yaml_of

        return yaml_of(document)
    text = msgspec.json.format(msgspec.json.encode(document), indent=4).decode()
    # JSON permits C1 control characters, but terminals interpret them.
    return text.translate(_ESCAPED) + "\n"


def resource_name(document: dict[str, Any]) -> ResourceArg:
    api_version, name = document["apiVersion"], document["kind"]
    kind = BUILT_IN.find(api_version, name)
    if kind is None:
        group, _, version = api_version.rpartition("/")
        kind = Kind(group, version, name, "", name.lower())
    return ResourceArg(kind, document["metadata"]["name"])


def _list_of(documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "items": list(documents),
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    }
