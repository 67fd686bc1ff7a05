"""Spark in client mode, its executors being Pods."""
