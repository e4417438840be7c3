"""Datasets by name: where each comes from and how its files are read."""
