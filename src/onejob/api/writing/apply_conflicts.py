"""Field manager conflicts of server-side apply: detection and the 409 response.

The response lists at most `MAX_CAUSES` conflicts, with the owner of each field.
"""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from onejob.api.writing.field_sets import FieldPath, FieldSet, in_order, render_field
from onejob.api.writing.managed_fields import Entry
from onejob.wire.errors import MAX_CAUSES, Conflict, more_causes
from onejob.wire.field_errors import shortened


class FieldConflict(Struct, frozen=True):
    entry: Entry
    path: FieldPath

    @property
    def owner(self) -> str:
        """Description of the conflicting manager, in upstream's words."""
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
        for path in in_order(entry.fields & changed)
    ]


def conflict_error(conflicts: Sequence[FieldConflict]) -> Conflict:
    shown = conflicts[:MAX_CAUSES]
    if len(conflicts) == 1:
        only = conflicts[0]
        text = f"1 conflict: conflict with {only.owner}: {_render_conflict(only)}"
    else:
        lines: list[str] = []
        by_owner: dict[str, list[FieldConflict]] = {}
        for conflict in shown:
            by_owner.setdefault(conflict.owner, []).append(conflict)
        for owner, theirs in by_owner.items():
            lines.append(f"conflicts with {owner}:")
            lines += [f"- {_render_conflict(conflict)}" for conflict in theirs]
        if len(conflicts) > MAX_CAUSES:
            lines.append(more_causes(len(conflicts)))
        text = f"{len(conflicts)} conflicts: " + "\n".join(lines)
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {conflict.owner}",
            "field": _render_conflict(conflict),
        }
        for conflict in shown
    ]
    return Conflict(f"Apply failed with {text}", details={"causes": causes})


def _render_conflict(conflict: FieldConflict) -> str:
    return shortened(render_field(conflict.path))
