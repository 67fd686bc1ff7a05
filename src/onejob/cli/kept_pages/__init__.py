"""Dashboard of kept runs (`onejob ui` without a server): read-only, on this machine.

`serving` listens; `app` answers; `run_app` is the API of one run, opened when its pages are.
"""
