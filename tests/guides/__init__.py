"""What README, tutorial and how-to pages tell a reader to type, typed."""
