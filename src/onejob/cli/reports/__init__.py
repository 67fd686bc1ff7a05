"""Answers of the commands that read: lists, explanations, logs and results, queried and printed."""
