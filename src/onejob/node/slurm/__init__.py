"""Slurm runtime: containers as processes on the nodes of a Slurm cluster.

`runtime` is the entry point. `fleet` owns the allocations and routes requests to them; `pilot` is
the program that each allocation runs: it starts the supervisor of `node.supervisor` on its node and
connects it to the files of `mailbox`. `sizing` decides, without I/O, which allocations to submit
and to return; `commands` calls Slurm's command line tools.
"""
