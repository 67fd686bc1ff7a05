"""Upstream's recorded behaviour, replayed through onejob's own code. See `loader`."""
