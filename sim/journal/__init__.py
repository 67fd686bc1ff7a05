"""Regression journal of the planners: recorded inputs and decisions, replayed on later versions.

It shows changed decisions before users meet them.
"""
