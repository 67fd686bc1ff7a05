"""`pods/proxy` and `services/proxy`: requests of clients, relayed to Pods of this node.

A connection is made through `PortSource`, so only to a port on which a process of that very Pod
listens: a request never leaves the machine, and reaches no other service of it.
"""
