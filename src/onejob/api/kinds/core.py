"""Strategies of Namespaces, ConfigMaps, Secrets, Services, Nodes and Leases."""

import base64
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from onejob.api.kinds.base import BaseStrategy, SelectableStrategy, keep_status
from onejob.api.kinds.printing import (
    CONFIG_MAP_COLUMNS,
    LEASE_COLUMNS,
    NAMESPACE_COLUMNS,
    NODE_COLUMNS,
    SECRET_COLUMNS,
    SERVICE_COLUMNS,
    config_map_cells,
    lease_cells,
    namespace_cells,
    node_cells,
    secret_cells,
    service_cells,
)
from onejob.api.strategy import Document
from onejob.wire.field_errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from onejob.wire.kinds import Kind
from onejob.wire.names import config_key_errors, label_errors, port_name_errors

_MAX_DATA_BYTES: Final = 1024 * 1024
_FROZEN: Final = "field is immutable when `immutable` is set"


class NamespaceStrategy(SelectableStrategy):
    selectable = frozenset({"status.phase"})

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind, name_rule=label_errors)

    def default(self, doc: Document, old: Document | None = None) -> None:
        metadata = doc.setdefault("metadata", {})
        if name := metadata.get("name"):
            metadata.setdefault("labels", {})["kubernetes.io/metadata.name"] = name

    def prepare_create(self, doc: Document) -> None:
        # A generated name is not known when defaults are set.
        self.default(doc)
        finalizers = doc.setdefault("spec", {}).setdefault("finalizers", [])
        if "kubernetes" not in finalizers:
            finalizers.append("kubernetes")
        doc["status"] = {"phase": "Active"}

    def prepare_update(self, new: Document, old: Document) -> None:
        keep_status(new, old)
        # Only /finalize may change these: they keep the namespace until it is empty.
        new["spec"] = old.get("spec", {})

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        return {"status.phase": doc.get("status", {}).get("phase", "")}

    def columns(self) -> list[dict[str, Any]]:
        return NAMESPACE_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return namespace_cells(doc, now)


class ConfigMapStrategy(BaseStrategy):
    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + _validate_config_data(doc)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = super().validate_update(new, old) + _validate_config_data(new)
        return errors + _validate_frozen(new, old, ("data", "binaryData"))

    def columns(self) -> list[dict[str, Any]]:
        return CONFIG_MAP_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return config_map_cells(doc, now)


#: Required keys by Secret type.
_SECRET_KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


#: A basic-auth Secret needs at least one of these.
_BASIC_AUTH: Final = ("username", "password")


class SecretStrategy(SelectableStrategy):
    selectable = frozenset({"type"})

    def default(self, doc: Document, old: Document | None = None) -> None:
        if not doc.get("type"):
            doc["type"] = "Opaque"
        for key, text in doc.pop("stringData", {}).items():
            doc.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + _validate_secret_data(doc)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        errors = super().validate_update(new, old)
        if new.get("type") != old.get("type"):
            errors.append(invalid("type", new.get("type"), "field is immutable"))
        return errors + _validate_secret_data(new) + _validate_frozen(new, old, ("data",))

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        return {"type": doc.get("type", "")}

    def columns(self) -> list[dict[str, Any]]:
        return SECRET_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return secret_cells(doc, now)


class ServiceAccountStrategy(BaseStrategy):
    unconditional_update = False


_SERVICE_TYPES: Final = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]


class ServiceStrategy(SelectableStrategy):
    """Strategy of Services, sufficient for clients that look them up; onejob routes no traffic."""

    selectable = frozenset({"spec.clusterIP", "spec.type"})

    def __init__(self, kind: Kind) -> None:
        super().__init__(kind, name_rule=label_errors)

    def default(self, doc: Document, old: Document | None = None) -> None:
        spec = doc.setdefault("spec", {})
        if not spec.get("type"):
            spec["type"] = "ClusterIP"
        if not spec.get("sessionAffinity"):
            spec["sessionAffinity"] = "None"
        for port in spec.get("ports", ()):
            if not port.get("protocol"):
                port["protocol"] = "TCP"
            if not port.get("targetPort") and "port" in port:
                port["targetPort"] = port["port"]
        if spec.get("clusterIP"):
            spec.setdefault("clusterIPs", [spec["clusterIP"]])

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + _validate_service(doc["spec"])

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return super().validate_update(new, old) + _validate_service(new["spec"])

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        spec = doc.get("spec", {})
        return {"spec.clusterIP": spec.get("clusterIP", ""), "spec.type": spec.get("type", "")}

    def columns(self) -> list[dict[str, Any]]:
        return SERVICE_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return service_cells(doc, now)


class NodeStrategy(SelectableStrategy):
    selectable = frozenset({"spec.unschedulable"})

    def default(self, doc: Document, old: Document | None = None) -> None:
        doc.setdefault("spec", {})

    def prepare_create(self, doc: Document) -> None:
        """Keep the status: a node reports its whole state when it registers."""

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + _validate_taints(doc)

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return super().validate_update(new, old) + _validate_taints(new)

    def selectable_fields(self, doc: Document) -> Mapping[str, str]:
        unschedulable = doc.get("spec", {}).get("unschedulable", False)
        return {"spec.unschedulable": "true" if unschedulable else "false"}

    def columns(self) -> list[dict[str, Any]]:
        return NODE_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return node_cells(doc, now)


class LeaseStrategy(BaseStrategy):
    unconditional_update = False

    def default(self, doc: Document, old: Document | None = None) -> None:
        doc.setdefault("spec", {})

    def validate_create(self, doc: Document) -> list[FieldError]:
        return super().validate_create(doc) + _validate_lease(doc.get("spec", {}))

    def validate_update(self, new: Document, old: Document) -> list[FieldError]:
        return super().validate_update(new, old) + _validate_lease(new.get("spec", {}))

    def columns(self) -> list[dict[str, Any]]:
        return LEASE_COLUMNS

    def cells(self, doc: Document, now: datetime) -> list[Any]:
        return lease_cells(doc, now)


def _validate_config_data(doc: Document) -> list[FieldError]:
    data, binary = doc.get("data", {}), doc.get("binaryData", {})
    errors = []
    size = 0
    for key, text in data.items():
        path = f"data[{key}]"
        errors += [invalid(path, key, message) for message in config_key_errors(key)]
        if key in binary:
            errors.append(invalid(path, key, "duplicate of key present in binaryData"))
        size += len(text.encode())
    for key, encoded in binary.items():
        errors += [invalid(f"binaryData[{key}]", key, m) for m in config_key_errors(key)]
        size += _decoded_size(encoded)
    if size > _MAX_DATA_BYTES:
        errors.append(too_long("data", _MAX_DATA_BYTES))
    return errors


def _validate_secret_data(doc: Document) -> list[FieldError]:
    data = doc.get("data", {})
    errors = []
    for key in data:
        errors += [invalid(f"data[{key}]", key, text) for text in config_key_errors(key)]
    if sum(map(_decoded_size, data.values())) > _MAX_DATA_BYTES:
        errors.append(too_long("data", _MAX_DATA_BYTES))
    for key in _SECRET_KEYS.get(doc.get("type", ""), ()):
        if key not in data:
            errors.append(required(f"data[{key}]"))
    if doc.get("type") == "kubernetes.io/basic-auth" and data.keys().isdisjoint(_BASIC_AUTH):
        errors += [required(f"data[{key}]") for key in _BASIC_AUTH]
    return errors


def _decoded_size(encoded: str) -> int:
    return len(encoded) * 3 // 4 - encoded.endswith("=") - encoded.endswith("==")


def _validate_frozen(new: Document, old: Document, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = []
    if not new.get("immutable"):
        errors.append(forbidden("immutable", _FROZEN))
    errors += [
        forbidden(field, _FROZEN)
        for field in fields
        if (new.get(field) or {}) != (old.get(field) or {})
    ]
    return errors


def _validate_service(spec: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    kind, ports = spec.get("type", ""), spec.get("ports", ())
    if kind not in _SERVICE_TYPES:
        errors.append(not_supported("spec.type", kind, _SERVICE_TYPES))
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        errors.append(required("spec.ports"))
    if kind == "ExternalName" and not spec.get("externalName"):
        errors.append(required("spec.externalName"))
    names = set()
    for i, port in enumerate(ports):
        path = f"spec.ports[{i}]"
        number, name = port.get("port", 0), port.get("name", "")
        if not 1 <= number <= 65535:
            errors.append(invalid(f"{path}.port", number, "must be between 1 and 65535, inclusive"))
        if not name:
            if len(ports) > 1:
                errors.append(required(f"{path}.name"))
        else:
            errors += [invalid(f"{path}.name", name, text) for text in label_errors(name)]
            if name in names:
                errors.append(duplicate(f"{path}.name", name))
            names.add(name)
        target = port.get("targetPort")
        if isinstance(target, str):
            errors += [
                invalid(f"{path}.targetPort", target, text) for text in port_name_errors(target)
            ]
    return errors


def _validate_taints(doc: Document) -> list[FieldError]:
    effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"]
    return [
        not_supported(f"metadata.taints[{i}].effect", taint.get("effect", ""), effects)
        for i, taint in enumerate(doc.get("spec", {}).get("taints", ()))
        if taint.get("effect") not in effects
    ]


def _validate_lease(spec: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    seconds, transitions = spec.get("leaseDurationSeconds", 1), spec.get("leaseTransitions", 0)
    if seconds <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions < 0:
        errors.append(
            invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")
        )
    return errors
