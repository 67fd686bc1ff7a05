"""Resource arguments in kubectl's syntax: `jobs`, `job/pi`, `po pi-x2k4p`, `all`."""

from collections.abc import Sequence
from typing import Final

import msgspec

from onejob.cli.errors import CommandError
from onejob.cli.known_kinds import BUILT_IN, KnownKinds
from onejob.wire.kinds import Kind

#: Types recognised in front of names by commands that also take bare names. Short, because any
#: other word, such as `deploy`, may well be the name of a Job.
_TYPES: Final = frozenset({"job", "jobs", "cronjob", "cronjobs", "cj", "pod", "pods", "po"})


class ResourceArg(msgspec.Struct, frozen=True):
    kind: Kind
    #: "" selects all objects of the kind.
    name: str = ""

    @property
    def type(self) -> str:
        """Return the singular with its group: `job.batch`, `pod`."""
        return f"{self.kind.singular}.{self.kind.group}".rstrip(".")

    def __str__(self) -> str:
        """Return the object in kubectl's form: `job.batch/pi`."""
        return f"{self.type}/{self.name}"


def parse_resource_args(
    words: Sequence[str], *, default: str = "", known: KnownKinds = BUILT_IN
) -> list[ResourceArg]:
    """Parse `TYPE`, `TYPE NAME...`, `TYPE/NAME...` or `TYPE,TYPE`. Raises CommandError.

    `default` is the type of bare names, unless there are several words and the first one is in
    `_TYPES`.
    """
    if not words:
        if default:
            example = "cronjob" if default == "cronjob" else "job"
            raise CommandError("no object specified", f"for example {example}/NAME")
        raise CommandError("no object specified", "for example jobs, or job/NAME")
    if any("/" in word for word in words):
        return [_parse_slashed(word, default, known) for word in words]
    if default and (len(words) == 1 or words[0] not in _TYPES):
        return [ResourceArg(known.named(default), name) for name in words]
    kinds = _kinds(words[0], known)
    if len(words) == 1:
        return [ResourceArg(kind) for kind in kinds]
    return [ResourceArg(kind, name) for kind in kinds for name in words[1:]]


def one_resource_arg(
    words: Sequence[str], *, default: str = "", known: KnownKinds = BUILT_IN
) -> ResourceArg:
    args = parse_resource_args(words, default=default, known=known)
    if len(args) != 1 or not args[0].name:
        raise CommandError("specify exactly one object", "for example job/NAME")
    return args[0]


def _kinds(text: str, known: KnownKinds) -> list[Kind]:
    if text == "all":
        return known.in_category("all")
    return [known.named(word) for word in text.split(",") if word]


def _parse_slashed(word: str, default: str, known: KnownKinds) -> ResourceArg:
    """Parse `KIND/NAME`, or a bare name of the default kind."""
    kind, slash, name = word.partition("/")
    if not slash and default:
        return ResourceArg(known.named(default), word)
    if not name:
        raise CommandError(f"{word}: missing name", "for example job/NAME")
    return ResourceArg(known.named(kind), name)
