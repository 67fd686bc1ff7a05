"""The memory: SQLite as a revision log with watches. The only place that persists."""
