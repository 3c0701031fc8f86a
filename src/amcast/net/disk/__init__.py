"""What a process keeps on its disk: the record log, which is its write-ahead log, and the delivery log."""
