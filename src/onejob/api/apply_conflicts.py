"""When an apply would change what others own: which fields, whose they are, and how to say so."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from onejob.api.errors import Conflict
from onejob.api.field_sets import FieldPath, FieldSet, render_field
from onejob.api.managed_fields import Entry


@dataclass(frozen=True, slots=True)
class FieldConflict:
    entry: Entry
    path: FieldPath

    @property
    def owner(self) -> str:
        text = msgspec.json.encode(self.entry.manager).decode()
        if self.entry.subresource:
            text += f' with subresource "{self.entry.subresource}"'
        if self.entry.operation == "Update":
            text += f" using {self.entry.api_version}"
        return text


def find_conflicts(others: Sequence[Entry], changed: FieldSet) -> list[FieldConflict]:
    return [
        FieldConflict(entry, path)
        for entry in sorted(others, key=lambda e: e.identity)
        for path in sorted(entry.fields & changed)
    ]


def conflict_error(conflicts: Sequence[FieldConflict]) -> Conflict:
    if len(conflicts) == 1:
        only = conflicts[0]
        text = f"1 conflict: conflict with {only.owner}: {render_field(only.path)}"
    else:
        lines: list[str] = []
        for owner in dict.fromkeys(conflict.owner for conflict in conflicts):
            lines.append(f"conflicts with {owner}:")
            lines += [f"- {render_field(c.path)}" for c in conflicts if c.owner == owner]
        text = f"{len(conflicts)} conflicts: " + "\n".join(lines)
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {conflict.owner}",
            "field": render_field(conflict.path),
        }
        for conflict in conflicts
    ]
    return Conflict(f"Apply failed with {text}", details={"causes": causes})
