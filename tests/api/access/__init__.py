"""Tests of authentication: tokens, keys and the objects that they depend on."""
