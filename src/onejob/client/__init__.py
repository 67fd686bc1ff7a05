"""The seam between whoever uses the API and where it is served."""
