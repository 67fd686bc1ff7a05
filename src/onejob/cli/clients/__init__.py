"""Where commands get their objects from: a server, or the store that a run left behind.

`sources` chooses; `base` is what both offer.
"""
