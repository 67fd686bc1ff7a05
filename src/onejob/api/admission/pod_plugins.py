"""Admission plugins of kube-apiserver that only add defaults to Pods; off unless they are enabled.

The defaults mean nothing here, and each Pod is larger with them. Suites of controllers expect them.
"""

from typing import Final

from onejob.api.strategy import Document

PRIORITY: Final = "Priority"
TOLERATIONS: Final = "DefaultTolerationSeconds"
PLUGINS: Final = (TOLERATIONS, PRIORITY)

_EFFECT: Final = "NoExecute"
_SECONDS: Final = 300
_TAINTS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def add_default_tolerations(spec: Document) -> None:
    """Tolerate for five minutes that the node is not ready or unreachable, as upstream."""
    given = spec.get("tolerations") or []
    added = [
        {"key": key, "operator": "Exists", "effect": _EFFECT, "tolerationSeconds": _SECONDS}
        for key in _TAINTS
        if not any(_tolerates(each, key) for each in given)
    ]
    if added:
        spec["tolerations"] = [*given, *added]


def _tolerates(toleration: Document, key: str) -> bool:
    """Return whether a toleration is for the taint, or for all."""
    return toleration.get("key", "") in (key, "") and toleration.get("effect", "") in (_EFFECT, "")
