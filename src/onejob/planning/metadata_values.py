"""Values in the form in which metadata and status store them."""

from datetime import datetime

from onejob.objects.meta import Meta


def annotated_number(metadata: Meta, annotation: str) -> int | None:
    """Return an annotation's value as a non-negative number; None if it is absent or malformed."""
    text = metadata.annotations.get(annotation)
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 10:
        return None
    return int(text)


def whole_second(moment: datetime) -> datetime:
    """Return the time truncated to whole seconds.

    API timestamps have no fractions, so a fractional time would compare unequal to itself once
    stored.
    """
    return moment.replace(microsecond=0)
