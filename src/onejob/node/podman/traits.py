"""Apart from the runtime, whose import takes a while: asked for before there is one."""

from onejob.node.runtime import RuntimeTraits

TRAITS = RuntimeTraits(uses_images=True)
