"""One module an area; each scenario tells what it does by its name."""
