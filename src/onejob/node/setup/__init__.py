"""Container setup shared by the runtimes: environment, volumes, tokens and files.

All access to folders that a workload can change goes through `node.supervisor.paths`.
"""
