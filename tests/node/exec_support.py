"""Reader for the output of an exec session."""

from onejob.node.descriptors import Source


async def everything(output: Source | None) -> bytes:
    assert output is not None
    text = b""
    while piece := await output.read():
        text += piece
    return text
