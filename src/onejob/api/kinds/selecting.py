"""Label selectors of documents."""

from collections.abc import Mapping
from typing import Any

import msgspec

from onejob.objects.meta import LabelSelector
from onejob.wire.selectors import SelectorError, matcher_of


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool | None:
    """Return whether a selector matches the labels; None if the selector is invalid."""
    try:
        return matcher_of(msgspec.convert(selector, LabelSelector)).matches(labels)
    except SelectorError:
        return None
