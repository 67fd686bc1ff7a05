"""Tests of runs on another API server (`run --on`)."""
