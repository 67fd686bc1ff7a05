"""World of two control planes: Jobs of `here` run on `there`, over a faulty network.

`here` is restarted at arbitrary points. `users.py` simulates the users of both sides; `copies.py`
checks that no Job ever runs twice and that no copy is left behind.
"""
