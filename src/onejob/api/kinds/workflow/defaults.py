"""Defaults of Workflows.

Templates get theirs when a Job is created from them: a graph of a thousand tasks would be stored
several times as large.
"""

from typing import Any


def default_workflow_spec(spec: dict[str, Any]) -> None:
    spec.setdefault("suspend", False)
    for task in spec.get("tasks", ()):
        for edge in task.get("dependsOn", ()):
            if not edge.get("condition"):
                edge["condition"] = "Complete"
