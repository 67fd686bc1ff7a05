"""What must hold at every moment of every history, and at its end.

Each check is told every stored version in the order of revisions, so that a Job is compared with
the Pods of its own moment. A crash loses the newest revisions and never one in between: whatever
holds in the order of revisions holds after every crash.
"""
