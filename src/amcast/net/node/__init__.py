"""The server's side: one process of a protocol on real sockets, a real disk and a real clock."""
