"""Probes and lifecycle hooks of running containers: exec, HTTP, TCP and gRPC.

`probes` runs the probes of a container on their schedule, `hooks` runs postStart and preStop;
`probe_checks` makes a single check. The results go back to `node.agent`, which decides on the
consequences.
"""
