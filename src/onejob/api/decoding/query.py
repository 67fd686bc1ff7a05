"""Parsing of query parameters and DELETE bodies into verb options, with upstream's errors.

Pure functions.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs

import msgspec

from onejob.wire.errors import BadRequest, Invalid
from onejob.wire.field_errors import (
    FieldError,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from onejob.wire.names import path_segment_errors
from onejob.wire.requests import DeleteOptions, ListOptions, User, WatchOptions, WriteOptions
from onejob.wire.selectors import SelectorError, parse_field_selector

Query: TypeAlias = Mapping[str, Sequence[str]]

_AMOUNT: Final = r"(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_duration: Final = re.compile(rf"[+-]?(?:{_AMOUNT}(?:ns|us|µs|μs|ms|s|m|h))+").fullmatch

_MAX_PARAMETERS: Final = 200
_MAX_MANAGER_BYTES: Final = 128
_OPTIONS_GROUP: Final = "meta.k8s.io"


def parse_query(raw: bytes) -> Query:
    """Return the values of each parameter. Raises BadRequest if there are too many."""
    if not raw:
        return {}
    try:
        return parse_qs(
            raw.decode("ascii", "replace"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=_MAX_PARAMETERS,
        )
    except ValueError as error:
        raise BadRequest(f"invalid query: {error}") from error


def first(query: Query, name: str) -> str:
    """Return the first value of a parameter; "" if it is absent."""
    values = query.get(name)
    return values[0] if values else ""


def selected_name(query: Query) -> str:
    """Return the single name selected by the field selector of a list or watch, else "".

    Authorization for that name is sufficient for the request.
    """
    text = first(query, "fieldSelector")
    if not text:
        return ""
    try:
        terms = parse_field_selector(text).terms
    except SelectorError:
        # Rejected later, with a message that gives the reason.
        return ""
    names = (term.value for term in terms if term.field == "metadata.name" and not term.negated)
    name = next(names, "")
    return "" if path_segment_errors(name) else name


def flag(query: Query, name: str) -> bool:
    """Return a boolean parameter as Go clients use it: true if present, except for `false` and
    `0`."""
    values = query.get(name, ())
    return len(values) > 0 and values[0].lower() not in ("false", "0")


def whole_number(query: Query, name: str) -> int | None:
    """Return a parameter as an int64; None if it is absent or empty. Raises BadRequest."""
    text = first(query, name)
    if not text:
        return None
    unsigned = text[1:] if text[0] in "+-" else text
    if not (unsigned.isascii() and unsigned.isdigit()):
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    number = int(text) if len(unsigned) < 20 else 2**63
    if not -(2**63) <= number < 2**63:
        raise BadRequest(f'strconv.ParseInt: parsing "{text}": value out of range')
    return number


def check_timeout(query: Query) -> None:
    """Raise BadRequest unless `timeout` is a duration in Go's notation: `1m30s`.

    It is the time that the client will wait. No request here takes that long, so it is not
    enforced.
    """
    text = first(query, "timeout")
    if not text or text.lstrip("+-") == "0" or _duration(text):
        return
    raise BadRequest(
        f'invalid timeout specified in the request URL - time: invalid duration "{text[:100]}"'
    )


def write_options(
    query: Query, user: User, user_agent: str, options_kind: str, *, patch_type: str = ""
) -> WriteOptions:
    """Return the options of a write.

    `options_kind` is CreateOptions, UpdateOptions or PatchOptions.
    """
    if not query and not patch_type:
        # Fast path: most requests have no parameters.
        return WriteOptions(user=user, field_manager=_manager_from(user_agent))
    manager = first(query, "fieldManager")
    validation = first(query, "fieldValidation")
    errors = [*_dry_run_errors(query.get("dryRun", ())), *_manager_errors(manager)]
    if patch_type == "apply" and not manager:
        errors.append(required("fieldManager", "is required for apply patch"))
    if patch_type not in ("", "apply") and "force" in query:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    if validation not in ("", "Ignore", "Strict", "Warn"):
        errors.append(
            not_supported("fieldValidation", validation, ["", "Ignore", "Strict", "Warn"])
        )
    _refuse(options_kind, errors)
    return WriteOptions(
        user=user,
        dry_run="All" in query.get("dryRun", ()),
        field_manager=manager or _manager_from(user_agent),
        field_validation=validation or "Warn",
        given=tuple(
            (name, value)
            for name, value in (("fieldManager", manager), ("fieldValidation", validation))
            if value
        ),
        force=flag(query, "force"),
    )


def list_options(query: Query) -> ListOptions:
    """Return the options of a list. Raises BadRequest, Invalid."""
    version = first(query, "resourceVersion")
    match = first(query, "resourceVersionMatch")
    token = first(query, "continue")
    errors = []
    if match:
        if not version:
            errors.append(
                forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden unless resourceVersion is provided",
                )
            )
        if token:
            errors.append(
                forbidden(
                    "resourceVersionMatch",
                    "resourceVersionMatch is forbidden when continue is provided",
                )
            )
        if match not in ("Exact", "NotOlderThan"):
            errors.append(
                not_supported("resourceVersionMatch", match, ["Exact", "NotOlderThan", ""])
            )
        if match == "Exact" and version == "0":
            errors.append(
                forbidden(
                    "resourceVersionMatch",
                    'resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
                )
            )
    if "sendInitialEvents" in query:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    _refuse("ListOptions", errors)
    return ListOptions(
        label_selector=first(query, "labelSelector"),
        field_selector=first(query, "fieldSelector"),
        limit=max(0, whole_number(query, "limit") or 0),
        continue_token=token,
        resource_version=version,
        resource_version_match=match,
    )


def watch_options(
    query: Query, default_timeout_seconds: int, *, only_name: str = ""
) -> WatchOptions:
    """Return the options of a watch. `only_name` is the object's name if the path contains one."""
    match = first(query, "resourceVersionMatch")
    errors = []
    if "sendInitialEvents" in query:
        if match != "NotOlderThan":
            errors.append(
                forbidden(
                    "resourceVersionMatch",
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                )
            )
    elif match:
        errors.append(
            forbidden(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        )
    if match not in ("", "NotOlderThan"):
        errors.append(not_supported("resourceVersionMatch", match, ["NotOlderThan"]))
    _refuse("ListOptions", errors)
    whole_number(query, "limit")
    timeout = whole_number(query, "timeoutSeconds")
    fields = first(query, "fieldSelector")
    if only_name:
        fields = f"metadata.name={only_name},{fields}" if fields else f"metadata.name={only_name}"
    return WatchOptions(
        label_selector=first(query, "labelSelector"),
        field_selector=fields,
        resource_version=first(query, "resourceVersion"),
        resource_version_match=match,
        allow_bookmarks=flag(query, "allowWatchBookmarks"),
        send_initial_events=(
            flag(query, "sendInitialEvents") if "sendInitialEvents" in query else None
        ),
        timeout_seconds=timeout if timeout and timeout > 0 else default_timeout_seconds,
    )


#: Upstream's option for deleting an unreadable object.
DESPITE_DAMAGE: Final = "ignoreStoreReadErrorWithClusterBreakingPotential"


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _DeleteBody(msgspec.Struct, rename="camel"):
    kind: str | None = None
    api_version: str | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    grace_period_seconds: int | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None
    ignore_store_read_error_with_cluster_breaking_potential: bool | None = None


def delete_options_from_body(document: dict[str, Any], user: User) -> DeleteOptions:
    """Return the options in a decoded DeleteOptions. Raises BadRequest, Invalid."""
    try:
        body = msgspec.convert(document, _DeleteBody)
    except msgspec.ValidationError as error:
        raise BadRequest(
            f'DeleteOptions in version "v1" cannot be handled as a DeleteOptions: {error}'
        ) from error
    if body.kind not in (None, "", "DeleteOptions"):
        raise BadRequest(
            f"decoded object cannot be converted to DeleteOptions: it is a {body.kind}"
        )
    return _delete_options(body, user)


def delete_options_from_query(query: Query, user: User) -> DeleteOptions:
    """Return the options of a deletion without a body. Raises BadRequest, Invalid."""
    orphan = flag(query, "orphanDependents") if "orphanDependents" in query else None
    return _delete_options(
        _DeleteBody(
            propagation_policy=first(query, "propagationPolicy") or None,
            orphan_dependents=orphan,
            grace_period_seconds=whole_number(query, "gracePeriodSeconds"),
            dry_run=list(query.get("dryRun", ())),
            ignore_store_read_error_with_cluster_breaking_potential=flag(query, DESPITE_DAMAGE),
        ),
        user,
    )


def _delete_options(body: _DeleteBody, user: User) -> DeleteOptions:
    """Return the validated options. Raises Invalid."""
    policy = body.propagation_policy
    errors = []
    if policy is not None and body.orphan_dependents is not None:
        errors.append(
            invalid(
                "propagationPolicy",
                policy,
                "orphanDependents and deletionPropagation cannot be both set",
            )
        )
    elif policy not in (None, "Foreground", "Background", "Orphan"):
        errors.append(
            not_supported(
                "propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"]
            )
        )
    errors += _dry_run_errors(body.dry_run or ())
    _refuse("DeleteOptions", errors)
    if body.orphan_dependents is not None:
        policy = "Orphan" if body.orphan_dependents else "Background"
    preconditions = body.preconditions or _Preconditions()
    return DeleteOptions(
        user=user,
        dry_run=bool(body.dry_run),
        propagation=policy or "",
        grace_seconds=body.grace_period_seconds,
        uid=preconditions.uid or "",
        resource_version=preconditions.resource_version or "",
        despite_damage=bool(body.ignore_store_read_error_with_cluster_breaking_potential),
    )


def _dry_run_errors(values: Sequence[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [not_supported("dryRun", list(values), ["All"])]


def _manager_errors(manager: str) -> list[FieldError]:
    errors = []
    if len(manager.encode()) > _MAX_MANAGER_BYTES:
        errors.append(too_long("fieldManager", _MAX_MANAGER_BYTES))
    if not manager.isprintable():
        errors.append(invalid("fieldManager", manager, "should only contain printable characters"))
    return errors


def _manager_from(user_agent: str) -> str:
    """Return the default field manager: the product in the User-Agent."""
    product = user_agent.split("/", 1)[0]
    if not product.isprintable():
        product = "".join(char for char in product if char.isprintable())
    return product[:_MAX_MANAGER_BYTES] or "unknown"


def _refuse(options_kind: str, errors: Sequence[FieldError]) -> None:
    """Raise Invalid if there are errors."""
    if errors:
        raise Invalid(options_kind, _OPTIONS_GROUP, "", errors)


def number(query: Query, name: str) -> int | None:
    """Return a non-negative parameter of a record of a Job; None if absent. Raises BadRequest."""
    text = first(query, name)
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadRequest(f"{name}={text[:20]}: expected a number")
    return int(text)
