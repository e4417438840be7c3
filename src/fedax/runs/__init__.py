"""A run's directory: file names, whole-file writing, the lock, reading it back."""
