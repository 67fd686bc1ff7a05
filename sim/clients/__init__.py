"""A world of clients: informers and HTTP clients of one API server, over a faulty network.

No controller runs. `writers.py` changes Pods in the server, `callers.py` sends writes over HTTP and
compares each answer with what the server stored, `caches.py` compares every cache with it.
"""
