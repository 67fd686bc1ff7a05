"""What a request says: query parameters and bodies in JSON, YAML or protobuf, as plain values.

Pure, and safe against whatever the bytes are: the outcome is a value or an `ApiError`.
"""
