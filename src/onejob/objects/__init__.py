"""Typed, frozen, partial views of API documents; read-only.

A *document* is the stored JSON; a *view* is the part of it that a decision reads. Decoding a view
skips unknown fields at C speed. A view is never written back, so unknown fields are not lost.
"""
