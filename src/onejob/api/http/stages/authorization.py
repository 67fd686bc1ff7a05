"""Authorization stage: check that a user may perform an operation."""

from collections.abc import Iterable

from onejob.api.access.authorization import Attributes, Authorizer, require
from onejob.wire.requests import User


class Authorization:
    """Stage that rejects operations the user may not perform."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def authorize(self, user: User, required: Iterable[Attributes]) -> None:
        """Raise Forbidden unless the user is authorized for all of `required`."""
        for attributes in required:
            require(self._authorizer, user, attributes)
