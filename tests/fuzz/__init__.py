"""Stateful fuzzing of the API: short runs in the tests, long ones by `make fuzz`."""
