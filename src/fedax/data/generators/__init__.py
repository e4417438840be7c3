"""Generated federations: a client's rows are a function of its number."""
