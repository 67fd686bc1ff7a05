"""`onejob top`: reading of snapshots, their text layout, and the full-screen terminal loop."""
