"""Container setup: environment, volumes and files before a start, and their removal afterwards.

Shared by the runtimes. All access to folders that a workload can change goes through
`node.supervisor.paths`.
"""
