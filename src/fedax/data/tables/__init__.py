"""A user's own rows: tables with a label column, and NumPy archives."""
