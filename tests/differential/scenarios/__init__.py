"""Scenarios, one module per area; their names describe them."""
