"""The real cluster. The only package that awaits."""
