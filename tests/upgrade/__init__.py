"""What earlier versions left behind: their databases and journals open in this one.

`python -m tests.upgrade.make_fixtures` adds files for the present versions; those of earlier ones
stay as they are.
"""
