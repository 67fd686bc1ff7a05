"""What the API server knows of a dashboard: it has pages below /ui, and sessions."""

from collections.abc import Mapping
from typing import Protocol

from onejob.api.access.authentication import Credentials
from onejob.api.http.answers import Answer
from onejob.api.http.incoming import Request


class Dashboard(Protocol):
    def session(self, headers: Mapping[bytes, bytes]) -> Credentials | None:
        """The credentials behind the session that a request names; None if it names none. Raises
        Unauthorized if that session has ended."""

    async def answer(
        self, request: Request, path: tuple[str, ...], credentials: Credentials
    ) -> Answer:
        """`path` is what follows /ui. The user of the request may be nobody: files of the page and
        signing in are for all. Raises PageNotFound and ApiErrors."""
