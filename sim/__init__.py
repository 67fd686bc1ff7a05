"""Deterministic simulator: the production control plane in virtual time with seeded faults.

Only the environment of the process is simulated: the disk (`disk.py`), the machine that runs
containers (`machine.py`), the wall clock, the latency and errors between the API and its clients
(`api.py`) and the users (`users.py`, `workloads.py`). Everything else is the code that `onejob
serve` runs. In half of the worlds the machine is a simulated kernel, on which the production
supervisor runs (`node/`).

Smaller worlds cover the parts that this one lacks (`worlds.py`, docs/decisions/0053): clients over
a simulated network, replicas with leader election, mirrored Jobs, races between controllers and
resumed runs. `history.py` records every stored version, `checks/` verifies the invariants on it,
and `mutants/` shows that the checks detect bugs.
"""
