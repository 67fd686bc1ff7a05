"""The simulator: the production control plane in virtual time, with faults drawn from a seed.

What is simulated is only what lies outside of the process: the disk (`disk.py`), the machine that
runs containers (`machine.py`), the wall clock, the distance between the API and those who use it
(`api.py`) and people (`people.py`, `workloads.py`). Everything else is what `onejob serve` runs.
In half of the worlds the machine is a simulated kernel, on which the production supervisor runs
(`node/`).
Smaller worlds have what it has not (`worlds.py`, docs/decisions/0053): clients over a simulated
network, replicas that elect a leader, mirrored Jobs, races of controllers and resumed runs.
`history.py` records every stored version, `checks/` judges it, `mutants/` shows that it can.
"""
