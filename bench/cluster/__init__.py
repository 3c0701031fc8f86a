"""`python -m bench.cluster` compares a real amcast cluster with its peers: etcd, NATS JetStream and PySyncObj.

Every system runs three replicas on loopback and orders messages of 64 bytes. In each round every system is started,
warmed up, measured in the same shapes (sessions x outstanding messages of each) and stopped, so that none runs while
another is measured; the next round goes in the opposite order. The best round of each measurement counts, because other
programs on the machine can only make one worse.

The load is a process of its own, whose CPU time is counted apart from the servers'. PySyncObj is a library for
replicated objects inside an application and has no clients: its load runs in the leader itself, which saves it a
connection.
"""
