"""Traces of a real cluster: the raw files that nodes write, and how those of all nodes become the tables of one run."""
