"""Text output: live and plain displays, tables, descriptions and explanations.

Formats documents as text. Most modules are pure; `listing` and `why` also query an API.
"""
