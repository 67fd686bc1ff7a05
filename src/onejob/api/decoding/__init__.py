"""Request decoding: query parameters, and bodies in JSON, YAML or protobuf, as plain values.

Pure functions. Any input is safe: the result is a value or an `ApiError`.
"""
