"""`onejob queue`: reads the queue from a server or a kept run, and shows it."""
