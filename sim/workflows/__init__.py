"""World of workflows: a whole control plane with crashes, a full disk and clock jumps.

Users create, suspend, edit and delete workflows, and delete the Jobs and Pods of their tasks.
"""
