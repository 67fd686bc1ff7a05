"""Controllers of other projects, unmodified, as processes against `onejob serve`."""
