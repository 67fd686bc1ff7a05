"""Databases as files, beside the server that uses them: copied, checked, read in spite of damage,
repaired."""
