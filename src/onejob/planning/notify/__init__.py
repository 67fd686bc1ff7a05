"""Decides who is notified of what: which annotation counts, which event a change is, what the
message says, when a message is given up. Pure."""
