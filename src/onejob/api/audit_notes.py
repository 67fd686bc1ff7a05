"""What other parts of the server note about the request that is worked on, for the audit log."""

from contextvars import ContextVar

_notes: ContextVar[dict[str, str] | None] = ContextVar("audit_notes", default=None)


def begin_notes() -> dict[str, str]:
    """Collect notes in this task from now on."""
    notes: dict[str, str] = {}
    _notes.set(notes)
    return notes


def note(name: str, text: str) -> None:
    """Costs nothing to speak of where nobody collects them."""
    notes = _notes.get()
    if notes is not None:
        notes[name] = text


def noted() -> bool:
    """Whether anybody collects notes here."""
    return _notes.get() is not None
