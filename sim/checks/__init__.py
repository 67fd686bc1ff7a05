"""Invariants of a history: conditions on every stored version and on the final state.

Each check sees every stored version in revision order, so that a Job is compared with the Pods of
the same revision. A crash loses the newest revisions and never one in between: an invariant that
holds in revision order holds after every crash.
"""
