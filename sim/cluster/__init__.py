"""A world of cluster mode: replicas of `onejob controller` and one API server on a faulty network.

The replicas elect a leader, lose it, are cut off, killed, stopped and started again. `leases.py`
checks the election, the checks of the control plane (`sim/checks`) judge the Jobs.
"""
