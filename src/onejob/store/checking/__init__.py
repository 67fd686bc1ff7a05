"""Tools for database files, outside the server that uses them: copy, check, salvage, repair."""
