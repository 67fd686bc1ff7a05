"""What `onejob bench` measures: scenarios, the peers and limits beside them, and the report.

Every figure is taken in a fresh process, so that its CPU time and memory are its own.
"""
