"""Server side of the dashboard of `onejob serve`: its files, sessions and summaries."""
