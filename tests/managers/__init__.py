"""Other people's controllers, unmodified, as processes against `onejob serve`."""
