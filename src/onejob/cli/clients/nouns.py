"""The words for what a command is about: `jobs`, `job/pi`, `po pi-x2k4p`, `all`."""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from onejob.cli.errors import CommandError
from onejob.wire.kinds import KINDS, Kind


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


def _words(kind: Kind) -> tuple[str, ...]:
    names = (kind.plural, kind.singular, *kind.short_names)
    return (*names, *(f"{name}.{kind.group}" for name in names if kind.group))


_READABLE: Final = tuple(kind for kind in KINDS if "list" in kind.verbs)
#: The core kinds come first in the table, so that `events` means those.
_BY_WORD: Final = {
    word: kind for kind in reversed(_READABLE) for word in (*_words(kind), kind.kind.lower())
}


def kind_named(word: str) -> Kind:
    kind = _BY_WORD.get(word.lower())
    if kind is None:
        close = get_close_matches(word.lower(), _BY_WORD, 1)
        known = ", ".join(dict.fromkeys(kind.plural for kind in _READABLE))
        hint = f"did you mean {close[0]}?" if close else f"there are {known}"
        raise CommandError(f"onejob serves no {word!r}", hint)
    return kind


def parse_nouns(words: Sequence[str], *, default: str = "") -> list[Noun]:
    """`TYPE`, `TYPE NAME...`, `TYPE/NAME...` or `TYPE,TYPE`; `default` is the type of bare
    names. Raises CommandError."""
    if not words:
        raise CommandError("what? name a kind of object", "for instance: jobs, or job/NAME")
    if any("/" in word for word in words):
        return [_slashed(word, default) for word in words]
    if default:
        return [Noun(kind_named(default), name) for name in words]
    kinds = _kinds(words[0])
    if len(words) == 1:
        return [Noun(kind) for kind in kinds]
    return [Noun(kind, name) for kind in kinds for name in words[1:]]


def one_noun(words: Sequence[str], *, default: str = "") -> Noun:
    nouns = parse_nouns(words, default=default)
    if len(nouns) != 1 or not nouns[0].name:
        raise CommandError("name one object", "for instance: job/NAME")
    return nouns[0]


def _kinds(text: str) -> list[Kind]:
    if text == "all":
        return [kind for kind in _READABLE if "all" in kind.categories]
    return [kind_named(word) for word in text.split(",") if word]


def _slashed(word: str, default: str) -> Noun:
    kind, slash, name = word.partition("/")
    if not slash and default:
        return Noun(kind_named(default), word)
    if not name:
        raise CommandError(f"{word}: a name is missing", "for instance: job/NAME")
    return Noun(kind_named(kind), name)
