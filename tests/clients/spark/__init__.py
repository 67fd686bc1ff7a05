"""Spark in client mode, with executors as Pods."""
