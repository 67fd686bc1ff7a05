"""What Pods decide about their documents, and the rules for pod templates of other kinds.

`strategy` is the entry point; the other modules hold one set of rules each and are pure.
"""
