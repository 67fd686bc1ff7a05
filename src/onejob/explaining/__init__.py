"""Why an object is in its state and what happens next, in words: pure functions over documents.

`onejob why` prints these answers, and the dashboard shows them.
"""
