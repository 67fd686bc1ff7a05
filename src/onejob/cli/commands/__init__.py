"""One module per command: its options, its help text and a few lines that call the
implementation."""
