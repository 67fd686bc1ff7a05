"""Tests of admission and conversion webhooks, with real HTTPS servers."""
