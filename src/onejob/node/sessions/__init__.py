"""Exec, attach and port forwarding: the node's side of these sessions."""
