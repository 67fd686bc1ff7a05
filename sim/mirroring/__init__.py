"""A world of two control planes: Jobs of `here` run on `there`, over a faulty network.

`here` is restarted now and then, in the middle of anything. `people.py` is what people do on both
sides, `copies.py` checks that no Job ever runs twice and that no copy is left behind.
"""
