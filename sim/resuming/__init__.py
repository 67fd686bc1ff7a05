"""World of `onejob run` and `run --resume`: runs are killed or leave failed
items, and are resumed until all items have succeeded.

Each run has a control plane and a folder of its own, as the command creates them. `items.py`
derives the items of each index, and the remaining ones, from manifests.

Processes end with the run that started them: a supervisor that outlives its run is not simulated
here (`tests/e2e/resume_rounds.py` kills real ones).
"""
