"""A real cluster against its peers: `python -m bench.cluster` runs them in turns on one machine and compares.

Every system runs three replicas on loopback and orders messages of 64 bytes. In each round every system is started,
warmed up, measured in the same shapes (sessions x outstanding messages of each) and stopped, so that none works while
another is measured; the next round goes in the other order. The best round of each measurement counts, because a
neighbour on the machine can only make one worse.

Load comes from a process of its own, whose CPU time is told apart from the servers'. PySyncObj is a library for
replicated objects inside an application and has no clients: its load runs in the leader itself, which spares it a
connection.
"""
