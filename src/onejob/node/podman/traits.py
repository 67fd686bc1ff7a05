"""Traits of the Podman runtime, needed before it exists; separate because importing it takes a
while."""

from onejob.node.runtime import RuntimeTraits

TRAITS = RuntimeTraits(uses_images=True)
