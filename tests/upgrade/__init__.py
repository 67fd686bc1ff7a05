"""Upgrade tests: databases and journals of earlier versions open in this one.

`python -m tests.upgrade.make_fixtures` adds files for the present versions; existing ones are not
changed.
"""
