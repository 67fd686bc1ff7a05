"""Notification decisions.

Pure: which annotation applies, which event a change represents, the text of the message, and when a
message is dropped.
"""
