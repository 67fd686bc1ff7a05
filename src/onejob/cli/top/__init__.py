"""What `onejob top` reads, how it lays that out, and the terminal that it keeps drawing on."""
