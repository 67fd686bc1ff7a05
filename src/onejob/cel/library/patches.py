"""Functions for expressions that build JSON patches."""

from onejob.cel.functions import Cost, Library

LIBRARY = Library()


@LIBRARY.add("jsonpatch.escapeKey(string) -> string", cost=Cost.TRAVERSE)
def escape_key(text: str) -> str:
    return text.replace("~", "~0").replace("/", "~1")
