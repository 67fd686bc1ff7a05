"""Hints for NotFound errors ("did you mean"): a similar name, another kind, another namespace."""

from difflib import get_close_matches
from typing import Final

from onejob.cli.errors import CommandError
from onejob.cli.sources.base import Api, ApiRequest, path_of
from onejob.cli.sources.selection import Sources
from onejob.objects.meta import CRONJOBS, JOBS, NAMESPACES, PODS
from onejob.wire.errors import ApiError, NotFound
from onejob.wire.kinds import BY_RESOURCE, Kind

#: Objects listed in search of a similarly spelled name.
_MAX_LISTED_NAMES: Final = 500
_LIKE_EACH_OTHER: Final = (JOBS, CRONJOBS, PODS)


def hint(where: Sources, missing: NotFound) -> str:
    """Return a hint for a NotFound error; "" if no name is similar or listing is forbidden."""
    name, plural = missing.details.get("name"), missing.details.get("kind")
    if not name or not plural:
        return ""
    group = missing.details.get("group", "")
    try:
        kind = where.kinds().named(f"{plural}.{group}" if group else plural)
        api = where.server()
        return "" if api is None else _on_server(where, api, kind, name)
    except (ApiError, CommandError):
        # The caller reports the NotFound itself; without permission to list, or with incomplete
        # details, there is no hint to add.
        return ""


def _on_server(where: Sources, api: Api, kind: Kind, name: str) -> str:
    own = where.namespace_in(api)
    if kind.namespaced:
        elsewhere = _list_page(api, kind, "", fieldSelector=f"metadata.name={name}")
        if elsewhere:
            place = elsewhere[0]["metadata"]["namespace"]
            return f"it exists in namespace {place}: use -n {place}"
    if other := _of_another_kind(api, kind, own, name):
        return f"did you mean {other}?"
    found = [item["metadata"]["name"] for item in _list_page(api, kind, own)]
    close = _closest_match(name, found)
    if not close and kind.resource == JOBS and where.kubeconfig is None:
        close = where.similar_kept_job(name)
    if close == name:
        return "it exists only in a kept run: see onejob runs"
    if close:
        return f"did you mean {kind.singular}/{close}?"
    return f"create it with onejob create namespace {name}" if kind.resource == NAMESPACES else ""


def _of_another_kind(api: Api, kind: Kind, namespace: str, name: str) -> str:
    """Return `kind/name` of a Job, CronJob or Pod with this name; "" if there is none.

    Commands interpret a bare name as that of a Job or a Pod, so that a CronJob's name may end up as
    the wrong kind.
    """
    if kind.resource not in _LIKE_EACH_OTHER:
        return ""
    for resource in _LIKE_EACH_OTHER:
        other = BY_RESOURCE[resource]
        if other != kind and _list_page(
            api, other, namespace, fieldSelector=f"metadata.name={name}"
        ):
            return f"{other.singular}/{name}"
    return ""


def _list_page(
    api: Api, kind: Kind, namespace: str, **query: str
) -> list[dict[str, dict[str, str]]]:
    asked = {**query, "limit": str(_MAX_LISTED_NAMES)}
    items: list[dict[str, dict[str, str]]]
    items = api.send(ApiRequest("GET", path_of(kind, namespace), asked)).document["items"]
    return items


def _closest_match(name: str, names: list[str]) -> str:
    return next(iter(get_close_matches(name, names, 1)), "")
