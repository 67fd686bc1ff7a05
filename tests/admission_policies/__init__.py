"""Tests of admission policies."""
