"""OpenTelemetry tracer, exporting over OTLP/HTTP.

Imported only by servers with tracing enabled: the libraries are an extra, and take longer to import
than the server. Each Job has one trace, whose id is the Job's UID: the Job itself is its root span,
syncs and containers are child spans. Requests have traces of their own, or belong to that of their
client.
"""

import hashlib
import logging
from datetime import datetime
from typing import Final
from uuid import UUID

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from onejob import __version__
from onejob.tracing import Attributes
from onejob.worker_threads import start_daemon

log = logging.getLogger(__name__)

#: Seconds. An unresponsive collector must not delay the server's shutdown for longer.
_CLOSE_SECONDS: Final = 3.0
_NANOS: Final = 1_000_000_000


class _Ids(RandomIdGenerator):
    """Random ids, except for the root of a Job's trace.

    Not thread-safe: only the loop's thread starts spans.
    """

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return self.next[0] if self.next is not None else super().generate_trace_id()

    def generate_span_id(self) -> int:
        return self.next[1] if self.next is not None else super().generate_span_id()


class _Begun:
    def __init__(self, span: trace.Span) -> None:
        self._span = span

    def end(self, name: str, attributes: Attributes, *, failure: str = "") -> None:
        self._span.update_name(name)
        self._span.set_attributes(dict(attributes))
        if failure:
            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end()


class OpenTelemetryTracer:
    """`Tracer` that exports to a collector.

    `endpoint` is the base URL of the collector, for instance http://localhost:4318. Other options
    (sampling, headers, batches) are set by the SDK's OTEL_* variables.
    """

    def __init__(self, endpoint: str) -> None:
        exporter = OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
        self._ids = _Ids()
        resource = Resource.create({"service.name": "onejob", "service.version": __version__})
        self._provider = TracerProvider(
            resource=resource, id_generator=self._ids, shutdown_on_exit=False
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("onejob", __version__)
        self._headers = TraceContextTextMapPropagator()

    def request(self, traceparent: str) -> _Begun:
        # An invalid traceparent starts a new trace, as the standard requires.
        parent = self._headers.extract({"traceparent": traceparent}, context=Context())
        return _Begun(self._tracer.start_span("request", parent, SpanKind.SERVER))

    def part_of(self, uid: str) -> _Begun:
        return _Begun(self._tracer.start_span("sync", self._parent_context(uid)))

    def record(
        self,
        name: str,
        uid: str,
        start: datetime,
        end: datetime,
        attributes: Attributes,
        *,
        whole: bool = False,
        failure: str = "",
    ) -> None:
        parent = Context() if whole else self._parent_context(uid)
        self._ids.next = _numbers(uid) if whole else None
        try:
            span = self._tracer.start_span(
                name, parent, attributes=dict(attributes), start_time=_nanoseconds(start)
            )
        finally:
            self._ids.next = None
        if failure:
            span.set_status(Status(StatusCode.ERROR, failure))
        span.end(end_time=_nanoseconds(max(start, end)))

    def close(self) -> None:
        try:
            start_daemon(self._provider.shutdown, "traces-end").join(_CLOSE_SECONDS)
        except OSError as error:
            log.warning("cannot send the last traces: %s", error.strerror)

    def _parent_context(self, uid: str) -> Context:
        trace_id, span_id = _numbers(uid)
        # The parts of a Job are sampled exactly if its root span will be.
        decision = self._provider.sampler.should_sample(None, trace_id, "job").decision
        sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
        outer = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
        return trace.set_span_in_context(NonRecordingSpan(outer), Context())


def _numbers(uid: str) -> tuple[int, int]:
    """Return the ids of an object's trace and of its root span."""
    digest = hashlib.sha256(uid.encode()).digest()
    try:
        number = UUID(uid).int
    except ValueError:
        number = int.from_bytes(digest[8:24])
    return number or 1, int.from_bytes(digest[:8]) or 1


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * _NANOS)
