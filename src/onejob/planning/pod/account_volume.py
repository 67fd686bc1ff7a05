"""Service account volume (`kube-api-access-*`) of a Pod.

It holds the account's token, the CA certificate of the API server and the namespace, at the path
where client libraries expect them.
"""

from typing import Any, Final

ACCOUNT_FOLDER: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME_PREFIX: Final = "kube-api-access-"
DEFAULT_ACCOUNT: Final = "default"
#: Token lifetime, as in Kubernetes; the odd number distinguishes these tokens from requested ones.
_TOKEN_SECONDS: Final = 3607
_CONTAINERS: Final = ("initContainers", "containers")
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"

Spec = dict[str, Any]


def mounts_token(account: str, pod_says: bool | None, account_says: bool | None) -> bool:
    """Return whether a Pod gets the volume.

    automountServiceAccountToken of the Pod takes precedence over that of the account. If neither is
    set, only Pods with an account other than `default` get it: `default` has no rights unless an
    administrator grants some, and a mount namespace for each container would be expensive for all
    Pods.
    """
    if pod_says is not None:
        return pod_says
    if account_says is not None:
        return account_says
    return account != DEFAULT_ACCOUNT


def with_account_volume(spec: Spec, seed: bytes) -> Spec:
    """Return the spec with the volume mounted in all containers whose mount path is still free.

    `seed` determines the volume's name: Pods of one template share it, and thereby their spec.
    """
    name = _name(spec, seed)
    changed: Spec = {}
    for field in _CONTAINERS:
        containers = spec.get(field) or []
        mounted = [_with_mount(container, name) for container in containers]
        if mounted != containers:
            changed[field] = mounted
    if not changed:
        return spec
    return {**spec, **changed, "volumes": [*(spec.get("volumes") or ()), _volume(name)]}


def _with_mount(container: Spec, name: str) -> Spec:
    mounts = container.get("volumeMounts") or []
    if any(mount.get("mountPath", "").rstrip("/") == ACCOUNT_FOLDER for mount in mounts):
        return container
    mount = {"name": name, "readOnly": True, "mountPath": ACCOUNT_FOLDER}
    return {**container, "volumeMounts": [*mounts, mount]}


def _name(spec: Spec, seed: bytes) -> str:
    """Return an unused volume name, derived from `seed`."""
    # Imported here because it loads OpenSSL, and `onejob run` has no service accounts.
    import hashlib

    taken = {volume.get("name") for volume in spec.get("volumes") or ()}
    while True:
        seed = hashlib.sha256(seed).digest()
        name = VOLUME_PREFIX + "".join(_LETTERS[byte % len(_LETTERS)] for byte in seed[:5])
        if name not in taken:
            return name


def _volume(name: str) -> Spec:
    """Return the volume."""
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    authority = {"key": "ca.crt", "path": "ca.crt"}
    return {
        "name": name,
        "projected": {
            "sources": [
                {"serviceAccountToken": {"expirationSeconds": _TOKEN_SECONDS, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [authority]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
            ],
            "defaultMode": 0o644,
        },
    }
