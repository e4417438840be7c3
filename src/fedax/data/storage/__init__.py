"""Where rows are kept: one copy in memory, or mapped from disk."""
