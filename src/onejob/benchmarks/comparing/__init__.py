"""`onejob bench --against REVISION`: two revisions of the source, measured in turns.

A busy machine, or one whose clock rate changes, makes figures of different minutes incomparable.
Rounds of both revisions alternate, and what is judged is their ratio within a round.
"""
