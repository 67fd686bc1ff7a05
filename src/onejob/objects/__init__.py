"""Typed, frozen, partial, read-only views of API documents.

A *document* is the stored JSON; a *view* is the part of it that a decision reads. Decoding a view
skips unknown fields at C speed. A view is never written back, so unknown fields are not lost.
"""
