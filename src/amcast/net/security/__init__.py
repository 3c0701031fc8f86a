"""Who may connect to a cluster, and what they may do there: certificates, TLS, tokens, tickets."""
