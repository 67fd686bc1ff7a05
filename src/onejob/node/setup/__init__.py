"""What a container finds when it starts: variables, volumes, files; and what is left to clear.

Shared by the runtimes. Everything that touches a folder which a workload can change goes through
`node.supervisor.paths`.
"""
