"""Clients of other projects, unmodified, against a real `onejob serve`."""
