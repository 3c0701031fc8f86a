"""Who may connect, and what they may do: certificates, TLS, tokens, tickets."""
