"""OpenTelemetry traces of a server, sent to an OTLP collector."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from onejob import tracing
from onejob.cli.errors import CommandError


@contextmanager
def traces_sent_to(endpoint: str | None) -> Iterator[None]:
    """Send traces to `endpoint` within this context. Raises CommandError.

    Without an endpoint nothing is imported or traced.
    """
    if endpoint is None:
        yield
        return
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        raise CommandError(
            f"--otlp-endpoint {endpoint!r} is not a URL", "for example http://localhost:4318"
        )
    try:
        from onejob.opentelemetry_traces import OpenTelemetryTracer
    except ImportError as error:
        raise CommandError(
            f"tracing requires {error.name}, which is not installed", "pip install 'onejob[otel]'"
        ) from None
    tracer = OpenTelemetryTracer(endpoint)
    tracing.use(tracer)
    try:
        yield
    finally:
        tracing.use(None)
        tracer.close()
