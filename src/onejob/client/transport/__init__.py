"""HTTP/1.1 as a client speaks it: one exchange at a time on connections that are used again.

`pool.Transport` sends requests, `answer.Answer` is what comes back, `dialing` opens connections,
through a proxy where there is one. Nothing here knows of Kubernetes.
"""
