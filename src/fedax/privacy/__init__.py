"""Clipping, noise and an account of what they guarantee: for simulations and for runs over a network."""
