"""The shapes of all served kinds, and what is derived from them: OpenAPI, protobuf, comparison.

`schema` and `shapes` are used by everything that writes; the rest only by `api.http`. The data
comes from `build_schema.py`.
"""
