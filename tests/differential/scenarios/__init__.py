"""Scenarios, one module per area; the name of each describes its action."""
