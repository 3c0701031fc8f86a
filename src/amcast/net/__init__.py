"""The real cluster: the processes that the simulator runs, over TCP and on disks."""
