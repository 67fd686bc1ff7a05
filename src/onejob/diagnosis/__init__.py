"""Explanations of an object's state and its next transition: pure functions over documents.

`onejob why` prints these explanations, and the dashboard shows them.
"""
