"""The client's side of a connection: a program's connections, its sessions, and load."""
