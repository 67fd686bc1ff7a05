"""Role-based access control: rules, bindings, and the default roles of a server.

Pure: documents in, decisions out. `api/access` calls it, `controllers/access.py` keeps it up to
date.
"""
