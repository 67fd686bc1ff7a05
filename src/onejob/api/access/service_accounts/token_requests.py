"""TokenRequest API: validate a request and issue its token. Authorization happens before."""

from datetime import timedelta
from typing import Any, Final

import msgspec

from onejob.api.access.authentication import API_AUDIENCES
from onejob.api.access.service_accounts.signing_keys import MAX_TOKEN_LIFETIME
from onejob.api.access.service_accounts.tokens import (
    ACCOUNTS,
    SECRETS,
    Bound,
    Find,
    Issuer,
    Named,
)
from onejob.api.strategy import Document
from onejob.objects.meta import NODES, PODS, Key
from onejob.wire.errors import BadRequest, Conflict, Invalid, not_found
from onejob.wire.field_errors import FieldError, invalid

_MIN_EXPIRATION_SECONDS: Final = 600
_MAX_EXPIRATION_SECONDS: Final = 1 << 32
_DEFAULT_SECONDS: Final = 3600
_KIND: Final = "TokenRequest"
_GROUP: Final = "authentication.k8s.io"
_RESOURCES: Final = {"Pod": PODS, "Secret": SECRETS, "Node": NODES}


class _Reference(msgspec.Struct, rename="camel"):
    kind: str = ""
    api_version: str = ""
    name: str = ""
    uid: str = ""


class _Spec(msgspec.Struct, rename="camel"):
    audiences: tuple[str, ...] | None = None
    expiration_seconds: int | None = None
    bound_object_ref: _Reference | None = None


class TokenRequests:
    """Issuer of tokens for the subresource `token` of service accounts."""

    def __init__(self, issuer: Issuer, find: Find) -> None:
        self._issuer = issuer
        self._find = find

    def create(
        self, namespace: str, name: str, body: Document, *, dry_run: bool = False
    ) -> Document:
        """Return the request with the issued token in its status.

        Raises the ApiError that the client receives.
        """
        _require_same_object(body, namespace, name)
        spec = _read_spec(body.get("spec"))
        if errors := _spec_errors(spec):
            raise Invalid(_KIND, _GROUP, "", errors)
        account = self._find(Key(ACCOUNTS, namespace, name))
        if account is None:
            raise not_found(ACCOUNTS, name)
        seconds = _DEFAULT_SECONDS if spec.expiration_seconds is None else spec.expiration_seconds
        life = min(timedelta(seconds=seconds), MAX_TOKEN_LIFETIME)
        audiences = spec.audiences or API_AUDIENCES
        bound = self._bound(namespace, name, spec.bound_object_ref)
        status: Document = {}
        if not dry_run:
            token, end = self._issuer.issue(
                namespace, Named(name, account.uid), audiences, life, bound
            )
            status = {"token": token, "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ")}
        shown = _mapping(body.get("spec"))
        shown = {**shown, "audiences": list(audiences), "expirationSeconds": seconds}
        return {
            "kind": _KIND,
            "apiVersion": f"{_GROUP}/v1",
            "metadata": {"name": name, "namespace": namespace, "creationTimestamp": None},
            "spec": {"boundObjectRef": None, **shown},
            "status": status,
        }

    def _bound(self, namespace: str, account: str, wanted: _Reference | None) -> Bound | None:
        """Return the object to bind a token to; None if none is requested. Raises BadRequest,
        NotFound, Conflict."""
        if wanted is None:
            return None
        resource = _RESOURCES.get(wanted.kind) if wanted.api_version == "v1" else None
        if resource is None:
            group = f"{wanted.api_version}, Kind={wanted.kind}"
            raise BadRequest(f"cannot bind token to object of type {group}")
        key = Key(resource, "" if resource == NODES else namespace, wanted.name)
        found = self._find(key)
        if found is None:
            raise not_found(resource, wanted.name)
        if wanted.uid and wanted.uid != found.uid:
            raise Conflict(
                f"the UID in the bound object reference ({wanted.uid}) does not match the UID in "
                f"record. The object might have been deleted and then recreated"
            )
        node = None
        if resource == PODS:
            if found.service_account != account:
                raise BadRequest(
                    f'cannot bind token for serviceaccount "{account}" to pod running with '
                    f"different serviceaccount name."
                )
            home = self._find(Key(NODES, "", found.node)) if found.node else None
            node = Named(found.node, home.uid) if home is not None else None
        return Bound(resource, Named(wanted.name, found.uid), node)


def _require_same_object(body: Document, namespace: str, name: str) -> None:
    if (given := body.get("kind") or _KIND) != _KIND:
        raise BadRequest(
            f"{given} in version {body.get('apiVersion', '')!r} cannot be handled as a {_KIND}"
        )
    metadata = _mapping(body.get("metadata"))
    for field, wanted in (("name", name), ("namespace", namespace)):
        if (metadata.get(field) or wanted) != wanted:
            raise BadRequest(
                f"the {field} of the provided object does not match the {field} sent on the request"
            )


def _read_spec(value: Any) -> _Spec:
    """Return the decoded spec of a TokenRequest; its defaults for null. Raises BadRequest."""
    try:
        return msgspec.convert(value if value is not None else {}, _Spec)
    except msgspec.ValidationError as error:
        raise BadRequest(f"cannot unmarshal a {_KIND}: {error}") from None


def _spec_errors(spec: _Spec) -> list[FieldError]:
    """Return the errors of the requested lifetime."""
    field, seconds = "spec.expirationSeconds", spec.expiration_seconds
    if seconds is None:
        return []
    if seconds < _MIN_EXPIRATION_SECONDS:
        return [invalid(field, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > _MAX_EXPIRATION_SECONDS:
        return [invalid(field, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _mapping(value: Any) -> Document:
    """Return an object; an empty one for null. Raises BadRequest for another type."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"cannot unmarshal a {_KIND}: expected an object")
    return value
