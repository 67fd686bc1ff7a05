"""Tests of admission control: policy of a namespace beyond the rules of a kind."""
