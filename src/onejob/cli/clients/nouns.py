"""The words for what a command is about: `jobs`, `job/pi`, `po pi-x2k4p`, `all`."""

from collections.abc import Sequence

import msgspec

from onejob.cli.clients.known_kinds import BUILT_IN, KnownKinds
from onejob.cli.errors import CommandError
from onejob.wire.kinds import Kind


class Noun(msgspec.Struct, frozen=True):
    kind: Kind
    #: "" means all of the kind.
    name: str = ""

    @property
    def type(self) -> str:
        """`job.batch`, `pod`"""
        return f"{self.kind.singular}.{self.kind.group}".rstrip(".")

    def __str__(self) -> str:
        """As kubectl reports on it: `job.batch/pi`."""
        return f"{self.type}/{self.name}"


def parse_nouns(
    words: Sequence[str], *, default: str = "", known: KnownKinds = BUILT_IN
) -> list[Noun]:
    """`TYPE`, `TYPE NAME...`, `TYPE/NAME...` or `TYPE,TYPE`; `default` is the type of bare
    names. Raises CommandError."""
    if not words:
        raise CommandError("what? name a kind of object", "for instance: jobs, or job/NAME")
    if any("/" in word for word in words):
        return [_slashed(word, default, known) for word in words]
    if default:
        return [Noun(known.named(default), name) for name in words]
    kinds = _kinds(words[0], known)
    if len(words) == 1:
        return [Noun(kind) for kind in kinds]
    return [Noun(kind, name) for kind in kinds for name in words[1:]]


def one_noun(words: Sequence[str], *, default: str = "", known: KnownKinds = BUILT_IN) -> Noun:
    nouns = parse_nouns(words, default=default, known=known)
    if len(nouns) != 1 or not nouns[0].name:
        raise CommandError("name one object", "for instance: job/NAME")
    return nouns[0]


def _kinds(text: str, known: KnownKinds) -> list[Kind]:
    if text == "all":
        return known.in_category("all")
    return [known.named(word) for word in text.split(",") if word]


def _slashed(word: str, default: str, known: KnownKinds) -> Noun:
    kind, slash, name = word.partition("/")
    if not slash and default:
        return Noun(known.named(default), word)
    if not name:
        raise CommandError(f"{word}: a name is missing", "for instance: job/NAME")
    return Noun(known.named(kind), name)
