"""Dependencies between Jobs: hold Jobs with `onejob.dev/after` until others have ended."""
