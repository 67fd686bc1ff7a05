"""Dependencies between Jobs: `onejob.dev/after` holds a Job until others have ended.

`annotation` parses the annotation, `state` is the durable record of pinned dependencies, `standing`
tells which Jobs are held, `decision` whether one is released or fails, and `cycles` finds cycles.
"""
