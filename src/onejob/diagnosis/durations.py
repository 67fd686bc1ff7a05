"""Human-readable durations."""


def short_seconds(seconds: float) -> str:
    """Format a duration as `0.4s`, `12s`, `3m05s` or `2h07m`.

    Negative durations, after the clock was set back, are shown as zero.
    """
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"
