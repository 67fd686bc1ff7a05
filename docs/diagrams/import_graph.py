"""Write imports.md, the import graph of the packages: `python docs/diagrams/import_graph.py`."""

from collections.abc import Mapping, Set
from pathlib import Path

import grimp

TARGET = Path(__file__).with_name("imports.md")
ROOT = "onejob"
#: Packages whose inside is drawn, too.
OPENED = ("api", "controllers", "node", "cli")

HEAD = """\
# Import graph

Written by `import_graph.py` from the code; `make diagrams` updates it. An arrow points from a
package to the packages that it imports. Arrows that follow from others are left out: if A imports B
and B imports C, an arrow from A to C is not drawn. A double arrow is an import cycle. `make lint`
checks the directions.
"""

Graph = Mapping[str, Set[str]]


def render() -> str:
    code = grimp.build_graph(ROOT, cache_dir=None)
    whole = package_graph(code, ROOT)
    shared = {
        name
        for name, imported in whole.items()
        if not code.find_children(f"{ROOT}.{name}") and not imported & set(packages(code, ROOT))
    }
    layers = {name: imported - shared for name, imported in whole.items() if name not in shared}
    sections = [
        HEAD,
        "## Packages\n",
        mermaid(layers),
        f"Modules outside the layers, which import none of them: {listed(shared)}.\n",
    ]
    for name in OPENED:
        inside = package_graph(code, f"{ROOT}.{name}")
        used = set[str]().union(*inside.values())
        alone = {part for part, imported in inside.items() if not imported and part not in used}
        parts = {part: imported for part, imported in inside.items() if part not in alone}
        sections += [f"## Inside {name}\n", mermaid(parts)]
        if alone:
            sections.append(f"Without imports inside the package: {listed(alone)}.\n")
    return "\n".join(sections)


def packages(code: grimp.ImportGraph, parent: str) -> list[str]:
    """Return the names of the subpackages of `parent`."""
    return [
        child.rpartition(".")[2]
        for child in code.find_children(parent)
        if code.find_children(child)
    ]


def package_graph(code: grimp.ImportGraph, parent: str) -> Graph:
    """Return the children of a package, each with the siblings that it or its modules import."""
    children = sorted(code.find_children(parent))
    trees = {child: {child} | code.find_descendants(child) for child in children}
    owner = {module: child for child, tree in trees.items() for module in tree}
    return {
        child.rpartition(".")[2]: {
            owner[imported].rpartition(".")[2]
            for module in trees[child]
            for imported in code.find_modules_directly_imported_by(module)
            if imported in owner and owner[imported] != child
        }
        for child in children
    }


def reachable(graph: Graph) -> dict[str, set[str]]:
    """Return the direct and indirect imports of each node."""
    closure: dict[str, set[str]] = {}
    for start in graph:
        found: set[str] = set()
        waiting = list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                waiting += graph.get(node, ())
        closure[start] = found
    return closure


def reduced(graph: Graph) -> dict[str, set[str]]:
    """Return the transitive reduction. Edges inside an import cycle are all kept."""
    below = reachable(graph)

    def same_cycle(one: str, other: str) -> bool:
        return one == other or (other in below[one] and one in below[other])

    def is_implied(start: str, end: str) -> bool:
        return not same_cycle(start, end) and any(
            end in below[via]
            for via in graph[start]
            if not same_cycle(via, start) and not same_cycle(via, end)
        )

    return {
        start: {end for end in ends if not is_implied(start, end)} for start, ends in graph.items()
    }


def mermaid(graph: Graph) -> str:
    """Return a flow chart, top layer first."""
    below = reachable(graph)
    edges = reduced(graph)
    lines = ["```mermaid", "flowchart TD"]
    for start in sorted(graph, key=lambda name: (-len(below[name]), name)):
        for end in sorted(edges[start]):
            if start not in edges[end]:
                lines.append(f"    {start} --> {end}")
            elif start < end:
                lines.append(f"    {start} <--> {end}")
    return "\n".join([*lines, "```", ""])


def listed(names: Set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


if __name__ == "__main__":
    TARGET.write_text(render())
