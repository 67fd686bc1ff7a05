"""YAML formatting, parse errors and line lookup for manifests.

Separate from `manifests`, and imported only where YAML is read or written: a command line needs
none.
"""

import re
from typing import Any, Final

import yaml

from onejob.api.decoding.yaml_reading import read_yaml

__all__ = ["line_in", "read_yaml", "yaml_error", "yaml_of"]

#: Strings that Kubernetes would parse as another type, though PyYAML would not.
_AMBIGUOUS: Final = re.compile(
    r"[yYnN]|[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?0[oO]?[0-7]+"
)
_SEGMENT: Final = re.compile(r"\.?([^.\[\]]+)|\[([^\]]*)\]")


def yaml_of(document: Any) -> str:
    """Return YAML in the document's own order, with long texts on one line."""
    text: str = yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100_000
    )
    return text


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        """Return True: a value used in two places is written twice."""
        return True


def _represent_text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    """Return a text as a block if it has several lines, quoted if Kubernetes would parse it as
    another type, else plain."""
    style = None
    if "\n" in text and not text.endswith(" "):
        style = "|"
    elif _AMBIGUOUS.fullmatch(text):
        style = "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def yaml_error(text: str, error: str) -> tuple[int, str]:
    """Return line and reason of a YAML parse error. The line counts from 1; 0 if unknown.

    `error` is the message of the YAML reader, for errors that PyYAML does not find.
    """
    try:
        for _ in yaml.parse(text, Loader=yaml.CSafeLoader):
            pass
    except yaml.MarkedYAMLError as marked:
        line = marked.problem_mark.line + 1 if marked.problem_mark else 0
        message = f"invalid YAML: {marked.problem or marked.context}"
        if marked.problem_mark and _starts_with_tab(text, line):
            message += " (indent with spaces: YAML does not allow tabs)"
        return line, message
    except yaml.YAMLError as other:
        return 0, f"invalid YAML: {' '.join(str(other).split())}"
    return 0, error.removeprefix("error converting YAML to JSON: yaml: ")


def _starts_with_tab(text: str, line: int) -> bool:
    """Return whether the line, counted from 1, is indented with a tab."""
    found = text.splitlines()[line - 1 : line]
    return bool(found) and "\t" in found[0][: len(found[0]) - len(found[0].lstrip())]


def line_in(text: str, field: str) -> int:
    """Return the line of a field, or of its innermost parent that exists; from 1."""
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    if node is None:
        return 1
    line: int = node.start_mark.line
    for name, key in _SEGMENT.findall(field):
        found = _child(node, name or key)
        if found is None:
            break
        line, node = found
    return line + 1


def _child(node: yaml.Node, name: str) -> tuple[int, yaml.Node] | None:
    """Return line and value of a mapping's field or of a list's item; None if it does not exist."""
    if isinstance(node, yaml.SequenceNode) and name.isdigit() and int(name) < len(node.value):
        item = node.value[int(name)]
        return item.start_mark.line, item
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == name:
                return key.start_mark.line, value
    return None
