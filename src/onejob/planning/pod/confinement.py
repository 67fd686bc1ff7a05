"""Namespace annotations that restrict the users, groups and host paths of its Pods. Pure."""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from onejob.wire.field_errors import FieldError, invalid

PREFIX: Final = "onejob.dev/"
RUN_AS_USER: Final = PREFIX + "run-as-user"
RUN_AS_GROUP: Final = PREFIX + "run-as-group"
ALLOWED_USERS: Final = PREFIX + "allowed-users"
ALLOWED_GROUPS: Final = PREFIX + "allowed-groups"
ALLOWED_HOST_PATHS: Final = PREFIX + "allowed-host-paths"
ANNOTATIONS: Final = (
    RUN_AS_USER, RUN_AS_GROUP, ALLOWED_USERS, ALLOWED_GROUPS, ALLOWED_HOST_PATHS
)  # fmt: skip

_MAX_ID: Final = 2**32 - 2
_RANGE: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")


class InvalidIdRange(ValueError):
    """The text is not a list of numbers and ranges."""


class Ids(msgspec.Struct, frozen=True):
    """Set of user or group IDs, as inclusive ranges."""

    ranges: tuple[tuple[int, int], ...]

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.ranges)

    def __str__(self) -> str:
        return ", ".join(
            str(first) if first == last else f"{first}-{last}" for first, last in self.ranges
        )


class Confinement(msgspec.Struct, frozen=True):
    """Restrictions of one namespace. An attribute that is None does not restrict Pods."""

    user: int | None = None
    group: int | None = None
    users: Ids | None = None
    groups: Ids | None = None
    host_paths: tuple[str, ...] | None = None

    @property
    def names_users(self) -> bool:
        return self.user is not None or self.users is not None

    def __bool__(self) -> bool:
        return self != _FREE


_FREE: Final = Confinement()


def read_ids(text: str) -> Ids:
    """Parse IDs and ranges, such as `1001,2000-2999`. Raises `InvalidIdRange`."""
    ranges = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part.strip())
        first = int(match[1]) if match else -1
        last = int(match[2] or match[1]) if match else -1
        if not 0 <= first <= last <= _MAX_ID:
            raise InvalidIdRange(text)
        ranges.append((first, last))
    return Ids(tuple(ranges))


def read_host_paths(text: str) -> tuple[str, ...]:
    """Parse absolute paths, separated by commas; an empty list allows no hostPath.

    Raises ValueError.
    """
    paths = [part.strip() for part in text.split(",") if part.strip()]
    for path in paths:
        if not path.startswith("/") or ".." in path.split("/"):
            raise ValueError(path)
    return tuple(_normalize(path) for path in paths)


def read_confinement(
    annotations: Mapping[str, str],
) -> tuple[Confinement, list[FieldError]]:
    """Return the restrictions and the errors in them. A malformed annotation allows nothing."""
    errors: list[FieldError] = []
    user, users = _read_pair(annotations, RUN_AS_USER, ALLOWED_USERS, errors)
    group, groups = _read_pair(annotations, RUN_AS_GROUP, ALLOWED_GROUPS, errors)
    if users is not None and groups is None:
        # Each user has a group of the same number. Any other group may grant more rights.
        groups = users
    if group is None and groups is not None and user is not None and user in groups:
        group = user
    paths: tuple[str, ...] | None = None
    if ALLOWED_HOST_PATHS in annotations:
        try:
            paths = read_host_paths(annotations[ALLOWED_HOST_PATHS])
        except ValueError:
            paths = ()
            text = "must be absolute paths without '..', separated by commas"
            errors.append(_error(annotations, ALLOWED_HOST_PATHS, text))
    return Confinement(user, group, users, groups, paths), errors


def _read_pair(
    annotations: Mapping[str, str], default: str, allowed: str, errors: list[FieldError]
) -> tuple[int | None, Ids | None]:
    """Return the default ID and the allowed IDs.

    If only the default is set, it alone is allowed.
    """
    ids: Ids | None = None
    if allowed in annotations:
        try:
            ids = read_ids(annotations[allowed])
        except InvalidIdRange:
            ids = Ids(())
            text = "must be numbers and ranges, separated by commas, such as 1001,2000-2999"
            errors.append(_error(annotations, allowed, text))
    number: int | None = None
    if default in annotations:
        try:
            ((number, last),) = read_ids(annotations[default]).ranges
        except ValueError:
            number, last = None, None
        if number is None or last != number:
            number, ids = None, Ids(())
            errors.append(_error(annotations, default, "must be a number"))
        elif ids is None:
            ids = Ids(((number, number),))
        elif number not in ids:
            errors.append(_error(annotations, default, f"must be one of {allowed}"))
    return number, ids


def _error(annotations: Mapping[str, str], name: str, text: str) -> FieldError:
    """Return the error of an annotation."""
    return invalid(f"metadata.annotations[{name}]", annotations[name], text)


def set_defaults(confinement: Confinement, spec: dict[str, Any]) -> None:
    """Set the namespace's user and group in a new Pod that specifies none."""
    for field, number in (("runAsUser", confinement.user), ("runAsGroup", confinement.group)):
        context = spec.get("securityContext") or {}
        if number is not None and field not in context:
            spec["securityContext"] = {**context, field: number}
    if confinement.groups is not None and "runAsGroup" not in (spec.get("securityContext") or {}):
        _set_own_groups(confinement.groups, spec)


def _set_own_groups(groups: Ids, spec: dict[str, Any]) -> None:
    """Set runAsGroup to the number of runAsUser where that group is allowed.

    Without it, the image would determine the groups of the process.
    """
    containers = [container for field in _CONTAINERS for container in spec.get(field) or ()]
    for owner in (spec, *containers):
        context = owner.get("securityContext") or {}
        if "runAsGroup" not in context and context.get("runAsUser", -1) in groups:
            owner["securityContext"] = {**context, "runAsGroup": context["runAsUser"]}


def pod_refusal(
    confinement: Confinement, spec: Mapping[str, Any], *, can_change_user: bool = True
) -> str:
    """Return why a Pod, with defaults applied, may not be created; "" if it may.

    `can_change_user`: whether Pods can run as a user other than the server's own.
    """
    said = list(_refused_ids(confinement, spec))
    if confinement.names_users and not can_change_user:
        said.append(
            "the namespace sets the user of its Pods, but the server does not run as root and "
            "can run them only as its own user"
        )
    return "; ".join([*said, *_refused_paths(confinement, spec)])


def _refused_ids(confinement: Confinement, spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the users and groups of a Pod that the namespace does not allow."""
    shared = spec.get("securityContext") or {}
    users, groups = confinement.users, confinement.groups
    if users is not None:
        yield from _bad_user("pod", shared, users)
        if "runAsUser" not in shared:
            silent = [name for name, own in _security_contexts(spec) if "runAsUser" not in own]
            if silent:
                yield f"container {silent[0]} must set runAsUser: {_allowed(users, ALLOWED_USERS)}"
    if groups is not None:
        yield from _bad_groups(shared, groups)
        if "runAsGroup" not in shared:
            silent = [name for name, own in _security_contexts(spec) if "runAsGroup" not in own]
            if silent:
                allowed = _allowed(groups, ALLOWED_GROUPS)
                yield f"container {silent[0]} must set runAsGroup: {allowed}"
    for name, own in _security_contexts(spec):
        if users is not None:
            yield from _bad_user(f"container {name}", own, users)
        if groups is not None and own.get("runAsGroup") is not None:
            yield from _bad_ids(f"container {name}", "runAsGroup", [own["runAsGroup"]], groups)


def _bad_user(who: str, context: Mapping[str, Any], users: Ids) -> Iterator[str]:
    user = context.get("runAsUser")
    if user is not None and user not in users:
        yield f"{who} may not set runAsUser={user}: {_allowed(users, ALLOWED_USERS)}"


def _bad_groups(shared: Mapping[str, Any], groups: Ids) -> Iterator[str]:
    for field in ("runAsGroup", "fsGroup"):
        if shared.get(field) is not None:
            yield from _bad_ids("pod", field, [shared[field]], groups)
    yield from _bad_ids("pod", "supplementalGroups", shared.get("supplementalGroups") or (), groups)


def _bad_ids(who: str, field: str, numbers: Sequence[int], groups: Ids) -> Iterator[str]:
    bad = [number for number in numbers if number not in groups]
    if bad:
        shown = ",".join(map(str, bad))
        yield f"{who} may not set {field}={shown}: {_allowed(groups, ALLOWED_GROUPS)}"


def _allowed(ids: Ids, annotation: str) -> str:
    """Return the explanation of a refused id."""
    return f"the namespace allows {str(ids) or 'none'} ({annotation})"


def _security_contexts(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each container's name and security context."""
    for field in _CONTAINERS:
        for container in spec.get(field) or ():
            yield container["name"], container.get("securityContext") or {}


def _refused_paths(confinement: Confinement, spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield the hostPath volumes of a Pod that the namespace does not allow."""
    allowed = confinement.host_paths
    if allowed is None:
        return
    for volume in spec.get("volumes") or ():
        source = volume.get("hostPath")
        if source is not None and not is_within(source.get("path", ""), allowed):
            yield (
                f"volume {volume['name']} may not use hostPath {source.get('path', '')}: allowed "
                f"are {', '.join(allowed) or 'none'}"
            )


def is_within(path: str, folders: Sequence[str]) -> bool:
    normal = _normalize(path)
    return any(
        normal == folder or normal.startswith(folder if folder == "/" else folder + "/")
        for folder in folders
    )


def _normalize(path: str) -> str:
    """Return an absolute path without `.`, `..` and repeated slashes."""
    # POSIX preserves exactly two leading slashes.
    return "/" + posixpath.normpath(path).lstrip("/")


def host_paths(confinement: Confinement, server: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the directories allowed for hostPath volumes; None allows all.

    The server resolves, creates and mounts host paths as root: a Pod that must not be root could
    get files from directories its user may not enter, and create files anywhere. Therefore such a
    Pod gets only directories that are listed explicitly.
    """
    allowed = both(confinement.host_paths, server)
    return () if allowed is None and confinement.names_users else allowed


def both(
    namespace: tuple[str, ...] | None, server: tuple[str, ...] | None
) -> tuple[str, ...] | None:
    """Return the directories that both allow; a namespace can only narrow the server's list."""
    if namespace is None or server is None:
        return server if namespace is None else namespace
    narrower = [path for path in namespace if is_within(path, server)]
    return (*narrower, *(path for path in server if is_within(path, namespace)))
