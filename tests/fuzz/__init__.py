"""State machines against the API: small ones in the tests, long ones by `make fuzz`."""
