"""The hands: gather what is known, plan, execute."""
