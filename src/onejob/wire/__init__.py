"""What is said between a Kubernetes API server and its clients, and nothing about how.

Kinds, requests and their outcomes, errors with their `Status`, names, labels, selectors,
quantities and times. Pure; imports only `objects`, so every layer above may use it.
"""
