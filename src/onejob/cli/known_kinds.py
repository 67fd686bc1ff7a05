"""Resource kinds that commands accept: the built-in ones and those discovered on the server.

Discovery is lazy: it runs only for a word that no built-in kind has, so that most commands save the
request.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Final

from onejob.cli.errors import CommandError
from onejob.wire.kinds import BY_KIND, KINDS, Kind


class KnownKinds:
    def __init__(self, discover: Callable[[], Sequence[Kind]] = lambda: ()) -> None:
        """`discover` lists the server's kinds; it is called at most once."""
        self._discover = discover

    @cached_property
    def _discovered_kinds(self) -> Sequence[Kind]:
        """Return the server's kinds that are not built in."""
        found = self._discover()
        return [kind for kind in found if (kind.api_version, kind.kind) not in BY_KIND]

    @cached_property
    def _discovered_words(self) -> Mapping[str, Kind]:
        return _by_word(self._discovered_kinds)

    def find(self, api_version: str, kind: str) -> Kind | None:
        found = BY_KIND.get((api_version, kind))
        if found is not None:
            return found
        names = (other for other in self._discovered_kinds if other.kind == kind)
        return next((other for other in names if other.api_version == api_version), None)

    def versions_of(self, kind: str) -> list[str]:
        """Return the apiVersions that serve a kind, sorted."""
        known = (*KINDS, *self._discovered_kinds)
        return sorted(other.api_version for other in known if other.kind == kind)

    def named(self, word: str) -> Kind:
        """Return the kind by plural, singular, short name or kind, with or without its group.

        Raises CommandError with a suggestion if no kind has that name.
        """
        lower = word.lower()
        kind = _BUILT_IN_WORDS.get(lower) or self._discovered_words.get(lower)
        if kind is None:
            from difflib import get_close_matches

            close = get_close_matches(lower, (*_BUILT_IN_WORDS, *self._discovered_words), 1)
            known = (kind for kind in (*_READABLE, *self._discovered_kinds) if not kind.stored_only)
            listed = ", ".join(dict.fromkeys(kind.plural for kind in known))
            hint = f"did you mean {close[0]}?" if close else f"supported kinds include {listed}"
            raise CommandError(f"unknown kind {word!r}", hint)
        return kind

    def in_category(self, category: str) -> list[Kind]:
        return [kind for kind in _READABLE if category in kind.categories]


def _by_word(kinds: Sequence[Kind]) -> dict[str, Kind]:
    """Map resource names to kinds; the first kind with a name keeps it."""
    words: dict[str, Kind] = {}
    for kind in kinds:
        if "list" in kind.verbs:
            for word in (*_accepted_names(kind), kind.kind.lower()):
                words.setdefault(word, kind)
    return words


def _accepted_names(kind: Kind) -> tuple[str, ...]:
    """Return all names by which users may refer to the kind."""
    names = tuple(filter(None, (kind.plural, kind.singular, *kind.short_names)))
    if not kind.group:
        return names
    ends = (kind.group, f"{kind.version}.{kind.group}")
    return (*names, *(f"{name}.{end}" for name in names for end in ends))


_READABLE: Final = tuple(kind for kind in KINDS if "list" in kind.verbs)
#: The core kinds come first in the table, so that `events` selects the core group's.
_BUILT_IN_WORDS: Final = _by_word(KINDS)

#: Kinds for commands that contact no server.
BUILT_IN: Final = KnownKinds()
