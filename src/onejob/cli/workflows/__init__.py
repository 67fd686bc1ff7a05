"""Workflows on the command line: their progress in a run, drawings of their graphs, re-runs.

Imported only by commands that found a workflow.
"""
