"""Specs of Kubernetes that fail against `onejob serve`, each with what it needs."""

from typing import Final

#: By the name of the spec.
KNOWN_FAILURES: Final[dict[str, str]] = {}
