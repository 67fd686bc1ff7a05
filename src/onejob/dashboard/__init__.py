"""What the dashboard of `onejob serve` shows: its files, its sessions, and summaries for it."""
