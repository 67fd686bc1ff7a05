"""Cycles among waiting Jobs."""

from collections.abc import Callable, Sequence


def find_cycle(name: str, edges: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """Return the names on a cycle through `name`, starting and ending with it; () if there is none.

    `edges` returns the names that a waiting Job waits for; () for all other Jobs. The search visits
    each Job once and does not recurse, because chains may be long.
    """
    came_from: dict[str, str] = {}
    stack = [name]
    while stack:
        here = stack.pop()
        for there in edges(here):
            if there == name:
                path = [name]
                while here != name:
                    path.append(here)
                    here = came_from[here]
                return (name, *reversed(path))
            if there not in came_from:
                came_from[there] = here
                stack.append(there)
    return ()


def cycle_text(names: Sequence[str]) -> str:
    """Return `a → b → a`, shortened in the middle if it is long."""
    if len(names) > 12:
        names = [*names[:6], "…", *names[-5:]]
    return " → ".join(names)
