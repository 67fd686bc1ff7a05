"""The senses: list-then-watch, caches with indexes, work queues."""
