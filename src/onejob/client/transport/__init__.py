"""HTTP/1.1 client transport: connection pool, one exchange at a time per connection.

`pool.Transport` sends requests, `answer.Answer` is a response being received, `dialing` opens
connections, through a proxy if configured. This package is independent of Kubernetes.
"""
