"""Supervisor: the process that owns a node's workloads and outlives the server.

Single-threaded, small, and limited to the standard library: it is started without `site` and
imports no onejob module outside this package. It executes requests received over a unix socket, and
records in a journal which attempts it started and how they ended.
"""
