"""The real cluster: the same process objects as in the simulator, over TCP, with durable state."""
