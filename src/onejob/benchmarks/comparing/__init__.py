"""A/B comparison of two source revisions: `onejob bench --against REVISION`.

On a busy machine, or one with a changing clock rate, figures of different minutes are not
comparable. Rounds of both revisions therefore alternate, and the result is their ratio within a
round.
"""
