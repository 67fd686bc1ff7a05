"""Parameters of bindings."""

from collections.abc import Sequence

import msgspec

from onejob.admission_policies.definitions import Binding, ParamKind, Policy
from onejob.api.admission.admission import ObservableStore
from onejob.api.admission.dynamic.activation import request_namespace
from onejob.api.admission.dynamic.attributes import AdmissionRequest
from onejob.api.admission.dynamic.matching import labels_of
from onejob.api.admission.dynamic.versions import Convert
from onejob.api.strategy import Document
from onejob.objects.meta import Key
from onejob.wire.kinds import Kind
from onejob.wire.registry import KindRegistry
from onejob.wire.selectors import matcher_of


class ConfigurationError(Exception):
    """The policy or binding cannot be evaluated; its failurePolicy decides."""


def param_kind(kinds: KindRegistry, wanted: ParamKind) -> Kind:
    """Return the kind of a policy's params. Raises ConfigurationError."""
    kind = kinds.by_kind.get((wanted.api_version, wanted.kind))
    if kind is None:
        raise ConfigurationError(f"failed to find resource referenced by paramKind: '{wanted}'")
    return kind


async def collect_params(
    policy: Policy,
    binding: Binding,
    request: AdmissionRequest,
    kinds: KindRegistry,
    store: ObservableStore,
    convert: Convert,
) -> Sequence[Document | None]:
    """Return the params to evaluate a policy with; [None] without params.

    Raises ConfigurationError.
    """
    reference = binding.param_ref
    if policy.param_kind is None or reference is None:
        return [None]
    kind = param_kind(kinds, policy.param_kind)
    namespace = ""
    if kind.namespaced:
        namespace = reference.namespace or request_namespace(request)
        if not namespace:
            raise ConfigurationError(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped "
                "resources"
            )
    elif reference.namespace:
        raise ConfigurationError(
            "paramRef.namespace must not be provided for a cluster-scoped `paramKind`"
        )
    if reference.name:
        document = _read(store, Key(kind.storage, namespace, reference.name))
        found = [] if document is None else [document]
    else:
        matcher = matcher_of(reference.selector)
        names = sorted(name for name, _ in store.newest_in(kind.storage, namespace))
        documents = (_read(store, Key(kind.storage, namespace, name)) for name in names)
        found = [doc for doc in documents if doc is not None and matcher.matches(labels_of(doc))]
    if not found and reference.denies_absence:
        raise ConfigurationError(
            "no params found for policy binding with `Deny` parameterNotFoundAction"
        )
    return await convert(found, kind)


def _read(store: ObservableStore, key: Key) -> Document | None:
    stored = store.newest(key)
    if stored is None:
        return None
    document: Document = msgspec.json.decode(stored.value)
    return document
