"""Mutants of the HTTP client: creates with a lost response, retries and batches."""

from collections.abc import Mapping

from onejob.client import http
from onejob.client.http import HttpClient
from onejob.client.transport.pool import Transport
from sim.mutants.planting import Plant, edit

MUTANTS: Mapping[str, Plant] = {
    "namesake taken for the object that was sent": edit(
        HttpClient._create_named, ("not matches_sent(found, op.document)", "False")
    ),
    "server error taken for a refusal": edit(
        http._is_refusal, ("error.code < 500", "error.code <= 500")
    ),
    "conflict with the own lost create taken for a refusal": edit(
        HttpClient._create_named,
        ("unknown is not None and isinstance(error, AlreadyExists)", "False"),
    ),
    "lost create repeated under another name": edit(
        HttpClient._create_named,
        (
            "unknown = error\n    assert",
            "raise already_exists(op.resource, name) from error\n    assert",
        ),
    ),
    "write repeated on a new connection": edit(
        Transport.request, ('if method != "GET":', "if False:")
    ),
    "write repeated after a gateway error": edit(
        HttpClient._answer,
        (
            "patient = status in (429, 503) and _is_seconds(retry_after)",
            'retry_after, patient = retry_after or "1", status == 429 or status >= 500',
        ),
    ),
    "results of a batch in the order of their answers": edit(
        HttpClient.write_many,
        ("[results[position] for position in range(len(ops))]", "list(results.values())"),
    ),
    "writes of one object sent side by side": edit(
        HttpClient.write_many,
        ("position if isinstance(op, Create) else op.key", "position"),
    ),
    "deletion acknowledged with an old revision": edit(
        HttpClient._what_is_there, ("(await self.list(what, limit=1)).revision", "1")
    ),
}
