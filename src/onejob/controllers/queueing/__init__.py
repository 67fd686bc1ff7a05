"""Job queueing: keep Jobs suspended while the concurrency limits are exhausted."""
