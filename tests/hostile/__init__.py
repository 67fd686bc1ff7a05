"""Attacks on a real `onejob serve`: by clients, other users of the machine, and Pods."""
