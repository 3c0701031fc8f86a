"""What nodes write down of a run, and how the files of all nodes become one run's tables."""
