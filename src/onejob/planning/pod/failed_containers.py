"""Which container of a Pod made it fail, when several did not end well."""

from collections.abc import Container, Iterable
from datetime import UTC, datetime
from typing import Final, Protocol, TypeVar

from onejob.objects.pod import Terminated

#: 128 + SIGKILL, 128 + SIGTERM: how containers end that are stopped because another one failed.
_STOPPED: Final = (137, 143)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


class _State(Protocol):
    @property
    def terminated(self) -> Terminated | None: ...


class _Status(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def state(self) -> _State: ...


Status = TypeVar("Status", bound=_Status)


def failed_containers(statuses: Iterable[Status], sidecars: Container[str]) -> list[Status]:
    """The containers that failed, the one that did so first at the front.

    Sidecars are stopped after the others and decide nothing: they are left out if any other
    container has ended. Times have whole seconds: of containers that ended in the same one, those
    that were stopped come last.
    """
    ended = [status for status in statuses if status.state.terminated is not None]
    deciding = [status for status in ended if status.name not in sidecars] or ended
    failed = [status for status in deciding if _end(status).exit_code != 0]
    return sorted(
        failed,
        key=lambda status: (
            _end(status).finished_at or _LATEST,
            _end(status).exit_code in _STOPPED,
        ),
    )


def _end(status: _Status) -> Terminated:
    end = status.state.terminated
    assert end is not None, "only containers that ended are asked"
    return end
