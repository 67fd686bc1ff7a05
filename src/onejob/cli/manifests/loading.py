"""Manifest reader: files, folders, stdin and URLs, each with one or several YAML documents.

Every document keeps its position, so that errors are reported with file, document number and line.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from onejob.api.decoding.json_reading import MAX_DEPTH
from onejob.cli.errors import EXIT_USAGE, CommandError
from onejob.cli.known_kinds import BUILT_IN, KnownKinds
from onejob.wire.errors import BadRequest
from onejob.wire.kinds import BY_KIND, KINDS, Kind

STDIN: Final = "-"
_REMOTE: Final = ("https://", "http://")
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_BOUNDARY: Final = re.compile(r"^---(?=\s|$)", re.MULTILINE)
#: A line that is neither empty nor a comment nor a directive.
_CONTENT: Final = re.compile(r"^[ \t]*[^\s#%]", re.MULTILINE)


class Problem(msgspec.Struct, frozen=True):
    """One error of a manifest, with its position."""

    #: Name of the source as given by the user; "" for an object made from a command line.
    source: str
    #: Number of the document in its source, from 1.
    document: int
    #: Line in the source, from 1; 0 if there is none to report.
    line: int
    #: Field path; "" for the document as a whole.
    field: str
    message: str

    def __str__(self) -> str:
        """Return `job.yaml: document 1, line 7: spec.foo: TEXT`."""
        text = f"{self.field}: {self.message}" if self.field else self.message
        return placed(text, self.source, self.document, self.line)


class InvalidManifests(CommandError):
    """Manifest errors, one line for each, so that all can be fixed at once."""

    def __init__(self, problems: Sequence[Problem], *, exit_code: int = EXIT_USAGE) -> None:
        super().__init__(str(problems[0]), exit_code=exit_code)
        self.problems = problems

    @property
    def lines(self) -> list[str]:
        return [str(problem) for problem in self.problems]


class Manifest(msgspec.Struct, frozen=True):
    """One object to create, read from a source or made by onejob."""

    #: Name of the source as given by the user; "" for an object made from a command line.
    source: str
    #: Number of the document in its source, from 1.
    number: int
    kind: Kind
    document: dict[str, Any]
    #: Text of the whole document, padded so that line numbers are those of the source; "" for an
    #: object that onejob made itself.
    text: str
    #: Field path of the object within the document, if it is an item of a List.
    prefix: str = ""

    @property
    def name(self) -> str:
        metadata = self.document.get("metadata")
        return str(metadata.get("name") or "") if isinstance(metadata, dict) else ""

    def problem(self, field: str, text: str) -> Problem:
        return Problem(self.source, self.number, self.line_of(field), field, text)

    def line_of(self, field: str) -> int:
        """Return the line of a field, or of its innermost parent that exists; from 1."""
        from onejob.cli.yaml_text import line_in, yaml_of

        return line_in(self.text or yaml_of(self.document), self.prefix + field)


def manifest_from_document(
    document: dict[str, Any], *, source: str = "", number: int = 1
) -> Manifest:
    """Return a Manifest for an object of a built-in kind that onejob made itself."""
    kind = BY_KIND[document["apiVersion"], document["kind"]]
    return Manifest(source, number, kind, document, "")


def placed(text: str, source: str, number: int, line: int = 0) -> str:
    """Return a message prefixed with the position of the object.

    Unchanged without a source: an object made from a command line has no position.
    """
    if not source:
        return text
    place = f"{'<stdin>' if source == STDIN else source}: document {number}"
    return f"{place}, line {line}: {text}" if line else f"{place}: {text}"


def read_manifests(sources: Sequence[str], known: KnownKinds = BUILT_IN) -> list[Manifest]:
    """Return all objects of all sources, in order. Raises CommandError."""
    found, problems = scan_manifests(sources, known)
    if problems:
        raise InvalidManifests(problems)
    if not found:
        raise CommandError(nothing_in(sources))
    return found


def nothing_in(sources: Sequence[str]) -> str:
    return f"no objects in {', '.join('<stdin>' if name == STDIN else name for name in sources)}"


def read_kustomized(folder: str) -> list[Manifest]:
    """Return the objects that kustomize builds from a folder. Raises CommandError."""
    from onejob.cli.manifests.remote import kustomize

    found, problems = _scan([(f"-k {folder}", kustomize(folder))], BUILT_IN)
    if problems:
        raise InvalidManifests(problems)
    if not found:
        raise CommandError(f"no objects in {folder}")
    return found


def scan_manifests(
    sources: Sequence[str], known: KnownKinds = BUILT_IN
) -> tuple[list[Manifest], list[Problem]]:
    """Return the readable objects, and the errors of the other documents.

    Raises CommandError for a source that cannot be read at all.
    """
    return _scan(((source, _read(source)) for source in _files(sources)), known)


def _scan(
    texts: Iterable[tuple[str, str]], known: KnownKinds
) -> tuple[list[Manifest], list[Problem]]:
    found: list[Manifest] = []
    problems: list[Problem] = []
    for source, whole in texts:
        for number, text in _documents(whole):
            try:
                found.extend(_manifests(source, number, text, known))
            except InvalidManifests as error:
                problems.extend(error.problems)
    return found, problems


def _files(sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        if source == STDIN or not Path(source).is_dir():
            yield source
            continue
        inside = sorted(path for path in Path(source).iterdir() if path.suffix in _SUFFIXES)
        if not inside:
            raise CommandError(f"{source}: no {', '.join(_SUFFIXES)} files in this directory")
        yield from map(str, inside)


def _read(source: str) -> str:
    try:
        if source == STDIN:
            if sys.stdin.isatty():
                print(
                    "note: reading a manifest from the terminal; end it with Ctrl-D",
                    file=sys.stderr,
                )
            return sys.stdin.buffer.read().decode()
        if source.startswith(_REMOTE):
            from onejob.cli.manifests.remote import download

            return download(source).decode()
        return Path(source).read_bytes().decode()
    except UnicodeDecodeError:
        raise CommandError(f"{source}: not a UTF-8 text file") from None
    except OSError as error:
        raise CommandError(f"{source}: {error.strerror}") from None


def _documents(text: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of each document, padded with empty lines to its position.

    A line that starts with `---` is always a document boundary, so no parser is needed.
    """
    start = number = 0
    boundaries = [*_BOUNDARY.finditer(text), None]
    for boundary in boundaries:
        piece = text[start : boundary.start() if boundary else None]
        # A file may start or end with `---`: empty documents contain no object.
        if _CONTENT.search(piece):
            number += 1
            yield number, "\n" * text.count("\n", 0, start) + piece
        start = boundary.end() if boundary else start


def _manifests(source: str, number: int, text: str, known: KnownKinds) -> Iterator[Manifest]:
    from onejob.cli.yaml_text import line_in, read_yaml, yaml_error

    try:
        value, duplicates = read_yaml(text.encode(), MAX_DEPTH)
    except BadRequest as error:
        line, why = yaml_error(text, error.message)
        raise InvalidManifests([Problem(source, number, line, "", why)]) from None
    if duplicates:
        raise InvalidManifests([_duplicate(source, number, text) for text in duplicates])
    prefix = ""
    documents = [value]
    if _is_list(value):
        prefix = "items[{}]."
        documents = [_completed(item, value) for item in value.get("items") or ()]
    for index, document in enumerate(documents):
        place = prefix.format(index)
        try:
            kind = _kind(document, known)
        except _NoSuchKind as error:
            line = line_in(text, place + error.field)
            raise InvalidManifests(
                [Problem(source, number, line, error.field, error.problem)]
            ) from None
        yield Manifest(source, number, kind, document, text, place)


def _is_list(value: Any) -> bool:
    """Return whether the value is a List, or a typed list as in API responses: a JobList."""
    if not isinstance(value, dict):
        return False
    if (value.get("apiVersion"), value.get("kind")) == ("v1", "List"):
        return True
    return str(value.get("kind")).endswith("List") and isinstance(value.get("items"), list)


def _completed(item: Any, parent: dict[str, Any]) -> Any:
    """Return a list item with apiVersion and kind derived from the list, as kubectl does.

    Items of a JobList may omit both.
    """
    kind = str(parent["kind"]).removesuffix("List")
    if not kind or not isinstance(item, dict):
        return item
    return {"apiVersion": parent.get("apiVersion"), "kind": kind, **item}


def _duplicate(source: str, number: int, text: str) -> Problem:
    """Return the problem for a duplicate key.

    The YAML reader's message starts with the line: `line 7: key "a" already set in map`.
    """
    line, _, message = text.removeprefix("line ").partition(": ")
    return Problem(source, number, int(line), "", message)


class _NoSuchKind(Exception):
    def __init__(self, field: str, problem: str) -> None:
        super().__init__(problem)
        self.field = field
        self.problem = problem


def _kind(document: Any, known: KnownKinds) -> Kind:
    if not isinstance(document, dict):
        raise _NoSuchKind("", "expected an object with apiVersion and kind")
    for field, like in _LIKE.items():
        value = document.get(field)
        if not isinstance(value, str) or not value:
            raise _NoSuchKind(field, f"expected a string such as {like}")
    api_version, kind = document["apiVersion"], document["kind"]
    found = known.find(api_version, kind)
    if found is not None:
        return found
    served = known.versions_of(kind)
    if served:
        text = f"{kind} is available as {' or '.join(served)}, not {api_version}"
        raise _NoSuchKind("apiVersion", text)
    from difflib import get_close_matches

    close = get_close_matches(kind, WRITABLE_KINDS, 1)
    hint = f", did you mean {close[0]}?" if close else ""
    text = f"unsupported kind {api_version} {kind}{hint}"
    raise _NoSuchKind("kind", f"{text} (supported: {', '.join(_ACTED_ON)})")


_LIKE: Final = {"apiVersion": "batch/v1", "kind": "Job"}

#: Kinds that users may create; the others are read-only or created by the server.
WRITABLE_KINDS: Final = tuple(
    dict.fromkeys(
        kind.kind
        for kind in KINDS
        if {"create", "list"} <= set(kind.verbs) and kind.kind not in ("Event", "Node", "Lease")
    )
)

#: Kinds listed in the error for an unsupported one: the kinds that onejob acts on.
_ACTED_ON: Final = tuple(
    dict.fromkeys(
        kind.kind for kind in KINDS if kind.kind in WRITABLE_KINDS and not kind.stored_only
    )
)
