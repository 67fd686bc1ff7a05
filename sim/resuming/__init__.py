"""A world of `onejob run` and `run --resume`: runs are killed, or leave failed items, and what is
left is run again until nothing is.

Each run has a control plane and a folder of its own, as the command makes them. `items.py` reads
from manifests which item each index stands for and says which ones a resumed run must have.

Processes end with the run that started them: `run --resume` does not wait yet for a supervisor that
outlives its run.
"""
