"""Interface between the API server and the dashboard: pages below /ui and login sessions."""

from collections.abc import Mapping
from typing import Protocol

from onejob.api.access.authentication import Credentials
from onejob.api.http.requests import UserRequest
from onejob.api.http.responses import Response


class Dashboard(Protocol):
    """Dashboard behind the API server's listener."""

    def session(self, headers: Mapping[bytes, bytes]) -> Credentials | None:
        """Return the credentials of the session that the request names; None if it names none.

        Raises Unauthorized if the session has expired.
        """

    async def answer(
        self, request: UserRequest, path: tuple[str, ...], credentials: Credentials
    ) -> Response:
        """Answer a dashboard request. `path` holds the segments after /ui.

        The request's user may be anonymous, because static files and the login are public. Raises
        PageNotFound and ApiErrors.
        """
