"""What people see: live and plain displays, tables, descriptions and explanations.

Turns documents into text; asks nobody for anything.
"""
