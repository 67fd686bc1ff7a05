"""Observation stage: metrics, log and trace of a request."""

import logging
from typing import Final

from onejob import tracing
from onejob.api.http.progress import Progress
from onejob.api.http.requests import Request
from onejob.api.http.responses import Response
from onejob.api.request_ids import RequestIds
from onejob.clock import Clock
from onejob.metrics import Metrics
from onejob.tracing import Span

log = logging.getLogger(__name__)

_MAX_LOGGED_LENGTH: Final = 500


class Observation:
    """Observes each request from its arrival to the end of its response.

    Sessions appear only in the number of long-running requests.
    """

    def __init__(self, clock: Clock, ids: RequestIds, metrics: Metrics) -> None:
        self._clock = clock
        self._ids = ids
        self._metrics = metrics
        self._tracer = tracing.current()
        self._logs_requests = log.isEnabledFor(logging.DEBUG)

    def begin(self, request: Request) -> Progress:
        """Return the state of a new request, with its id, start time and span."""
        progress = Progress(request, self._ids.of(request.fields), self._clock.monotonic())
        if self._tracer is not None and not request.upgrade:
            parent = request.fields.get(b"traceparent", b"").decode("latin-1")
            progress.span = self._tracer.request(parent)
        return progress

    def responded(self, progress: Progress, response: Response) -> None:
        """Observe a response that is about to be sent."""
        progress.code = response.code
        progress.endless = response.endless
        labels = progress.labels = progress.describe()
        if progress.request.upgrade:
            verb = "WATCH" if labels[0] == "WATCH" else "CONNECT"
            labels = progress.labels = (verb, *labels[1:])
        else:
            verb, group, version, resource, subresource = labels
            self._metrics.requests.inc(
                verb=verb,
                group=group,
                version=version,
                resource=resource,
                subresource=subresource,
                code=str(response.code),
            )
            if response.code >= 500 and not progress.logged:
                _log_own_error(progress, response)
            elif self._logs_requests:
                _log_request(progress, self._clock.monotonic() - progress.started_at)
        if response.endless:
            self._metrics.open_streams.series(verb=labels[0], resource=labels[3]).value += 1

    def failed(self, progress: Progress) -> None:
        """Log the exception that is being handled."""
        progress.logged = True
        request_id = progress.request_id.decode()
        log.exception(
            "request %s: %s %s failed",
            *(request_id, progress.request.method, progress.request.raw_path),
            extra={"request": request_id},
        )

    def out_of_memory(self, progress: Progress) -> None:
        """Log a request that failed for want of memory; its traceback would not help."""
        log.warning("%s %s: out of memory", progress.request.method, progress.request.raw_path)

    def ended(self, progress: Progress) -> None:
        """Observe the end of a response, or of a request that gets none."""
        if progress.endless:
            labels = progress.labels
            self._metrics.open_streams.series(verb=labels[0], resource=labels[3]).value -= 1
        elif progress.code and not progress.request.upgrade:
            took = self._clock.monotonic() - progress.started_at
            verb, group, version, resource, subresource = progress.labels
            self._metrics.request_duration.observe(
                took,
                verb=verb,
                group=group,
                version=version,
                resource=resource,
                subresource=subresource,
            )
        if progress.span is not None:
            _end_span(progress.span, progress)


def _end_span(span: Span, progress: Progress) -> None:
    """End the span of a request, named and described by its outcome."""
    verb, *_, resource, subresource = progress.describe()
    what = "/".join(part for part in (resource, subresource) if part)
    attributes: dict[str, str | int] = {
        "http.request.method": progress.request.method,
        "url.path": progress.request.raw_path,
        "http.response.status_code": progress.code,
        "onejob.request_id": progress.request_id.decode(),
    }
    if progress.operation is not None and progress.operation.namespace:
        attributes["k8s.namespace.name"] = progress.operation.namespace
    failure = f"answered with {progress.code}" if progress.code >= 500 else ""
    span.end(f"{verb} {what}".strip(), attributes, failure=failure)


def _log_own_error(progress: Progress, response: Response) -> None:
    """Log a server-side error with the request that caused it."""
    message = ""
    if isinstance(response.body, bytes):
        message = response.body[:_MAX_LOGGED_LENGTH].decode("utf-8", "replace")
    shown = progress.request_id.decode()
    log.warning(
        "request %s: %s %s was answered with %d: %s",
        *(shown, progress.request.method, progress.request.raw_path, response.code, message),
        extra={"request": shown},
    )


def _log_request(progress: Progress, took: float) -> None:
    shown = progress.request_id.decode()
    log.debug(
        "request %s: %s %s: %d after %.1f ms",
        *(shown, progress.request.method, progress.request.raw_path, progress.code, took * 1000),
        extra={"request": shown},
    )
