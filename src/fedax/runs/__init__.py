"""A run's directory: its files, who works on it, what it tells."""
