"""One client's part of a run: its plan, its rows on the devices, its round, and what the round costs."""
