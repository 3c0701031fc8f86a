"""What both sides of a connection share: frames, the messages besides the protocol's own, dialing, sending."""
