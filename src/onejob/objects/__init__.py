"""The nouns: frozen, partial, read-only views of API documents.

A *document* is the stored JSON; a *view* is what logic reads of it. Decoding a view skips
fields it does not know at C speed. Views are never written back, so nothing is lost.
"""
