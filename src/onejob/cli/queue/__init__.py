"""`onejob queue`: reading the queue from a server or a kept run, and its text."""
