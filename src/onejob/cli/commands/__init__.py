"""One module per command: its options, its help and a few lines that call the rest."""
