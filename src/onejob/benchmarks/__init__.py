"""Benchmarks of `onejob bench`: scenarios, their peers and limits, and the report.

Every figure is measured in a fresh process, so that CPU time and memory are attributed correctly.
"""
