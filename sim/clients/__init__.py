"""World of clients: informers and HTTP clients of one API server, over a faulty network.

No controller runs. `writers.py` changes Pods in the server, `callers.py` sends writes over HTTP and
compares each response with the server's stored state, `caches.py` compares every cache with it.
"""
