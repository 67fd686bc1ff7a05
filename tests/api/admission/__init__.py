"""What comes into a namespace, beyond the rules of its kind."""
