"""Who somebody is: tokens, keys and the objects that they depend on."""
