"""Role-based access control: what rules allow, who has which, which every server starts with.

Pure: documents in, decisions out. `api/access` asks, `controllers/access.py` keeps it up to date.
"""
