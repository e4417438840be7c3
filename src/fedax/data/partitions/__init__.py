"""Partitions: rules that divide the rows of one dataset among clients."""
