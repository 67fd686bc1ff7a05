"""One module per command: options, help text and a few lines that call the implementation."""
