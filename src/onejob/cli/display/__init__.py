"""Text output: terminals, tables, documents, descriptions and results.

Formats values that other packages have read. Accesses no API.
"""
