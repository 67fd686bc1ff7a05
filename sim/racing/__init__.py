"""A world of races: one control plane whose requests take their time, and people who replace,
disown and requeue objects meanwhile.

Between what a controller reads and what it writes, names come to mean other objects, owners change
and times to live are raised. `deletions.py` checks that nothing goes that should stay.
"""
