"""Audit annotations of the current request, collected from other parts of the server."""

from contextvars import ContextVar

_notes: ContextVar[dict[str, str] | None] = ContextVar("audit_notes", default=None)


def begin_notes() -> dict[str, str]:
    """Start collecting annotations in this task and return the dict that they are added to."""
    notes: dict[str, str] = {}
    _notes.set(notes)
    return notes


def note(name: str, text: str) -> None:
    """Add an annotation. Nearly free if no audit log is kept."""
    notes = _notes.get()
    if notes is not None:
        notes[name] = text


def noted() -> bool:
    """Return whether annotations are being collected in this task."""
    return _notes.get() is not None
