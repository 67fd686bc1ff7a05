"""Syntax trees of Python files."""

import ast
import gc
from pathlib import Path


def syntax_tree(path: Path) -> ast.Module:
    """Parse a file without collecting garbage in between.

    Until Python 3.12.2, and in all of 3.11, parsing counts its depth in a global: where a finalizer
    or another thread parses as well, as for a traceback, the outer parser raises `SystemError: AST
    constructor recursion depth mismatch` (python/cpython#106905).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    finally:
        if was_enabled:
            gc.enable()
