"""World of cluster mode: replicas of `onejob controller` and one API server on a faulty network.

The replicas elect a leader, lose it, are partitioned, killed, stopped and restarted. `leases.py`
checks the election; the checks of the control plane (`sim/checks`) verify the Jobs.
"""
