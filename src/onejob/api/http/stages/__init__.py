"""Stages that a request passes on its way to a response; `onejob.api.http.app` has their order.

A stage has one job and imports no other stage. It gets the `Request`, and what earlier stages have
determined, as arguments; it returns what later stages need, and raises an ApiError to reject the
request. State that outlives a stage (a held seat, the audit record) is in `Progress`, and
`ApiApp` releases it when the response has been sent.

Stages run on the event loop for every request, so they must not block, and each call counts:
`tests/benchmarks/test_request_calls.py` limits the total.
"""
