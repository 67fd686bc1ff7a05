"""Benchmarks of `onejob bench`: scenarios, peers and theoretical limits for comparison, and the
report.

Every figure is measured in a fresh process, so that CPU time and memory are attributed correctly.
"""
