"""Kubernetes API protocol types, independent of the transport.

Kinds, requests and their outcomes, errors with their `Status`, names, labels, selectors, quantities
and times. Pure; imports only `objects`, so every layer above may use it.
"""
