"""Shell completion: files, kinds, and names of existing objects.

Prints nothing and never blocks for long: candidates that cannot be read are left out.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import click

from onejob.cli.errors import CommandError

if TYPE_CHECKING:
    # Imported only for completion; all other commands would pay for the import.
    from click.shell_completion import CompletionItem

    from onejob.cli.sources.base import Api

#: Kinds whose objects are offered by commands that accept any kind.
_COMMON: Final = ("job", "cronjob", "pod")
_MAX_COMPLETIONS: Final = 200


def complete_file(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def complete_object(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Complete `job/NAME`; after a word that is a kind, names of that kind."""
    before = [word for word in context.params.get(parameter.name or "") or () if word]
    if before and "/" not in before[0]:
        return _items(_complete_name(context, before[0]), incomplete)
    kind, slash, _ = incomplete.partition("/")
    kinds = (kind,) if slash else _COMMON
    found = (f"{one}/{name}" for one in kinds for name in _complete_name(context, one))
    return _items(found, incomplete)


def complete_kind_or_object(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Complete the first word as a kind or `KIND/NAME`, later words as objects."""
    before = context.params.get(parameter.name or "") or ()
    if before or "/" in incomplete:
        return complete_object(context, parameter, incomplete)
    from onejob.wire.kinds import KINDS

    plurals = dict.fromkeys(kind.plural for kind in KINDS if "list" in kind.verbs)
    return _items(plurals, incomplete)


def complete_file_or_object(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem]":
    """Complete a file, and `KIND/NAME` after the slash."""
    named = complete_object(context, parameter, incomplete) if "/" in incomplete else []
    return [*named, *complete_file(context, parameter, incomplete)]


def _items(words: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    from click.shell_completion import CompletionItem

    return [CompletionItem(word) for word in words if word.startswith(incomplete)][
        :_MAX_COMPLETIONS
    ]


def _complete_name(context: click.Context, kind: str) -> list[str]:
    from onejob.wire.errors import ApiError

    try:
        return list(dict.fromkeys(_found_names(context, kind)))
    except (CommandError, ApiError, OSError):
        return []


def _found_names(context: click.Context, kind: str) -> Iterator[str]:
    from onejob.cli.known_kinds import BUILT_IN
    from onejob.cli.sources.base import list_all
    from onejob.cli.sources.selection import sources

    given = context.params
    chosen = BUILT_IN.named(kind)
    where = sources(given.get("data_dir"), given.get("kubeconfig"), given.get("namespace"))
    try:
        server = where.server()
        places: Iterable[Api] = where.runs() if server is None else (server,)
        for api in places:
            namespace = where.namespace if server is None else where.namespace_in(api)
            for document in list_all(api, chosen, namespace):
                yield document["metadata"]["name"]
    finally:
        where.close()
