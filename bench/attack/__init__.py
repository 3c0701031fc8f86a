"""Attacks a real cluster with TLS and tokens while correct clients use it, and checks that they can go on.

    python -m bench.attack                                  # all attacks: about ten minutes
    python -m bench.attack --attack mute-connections --connections 50000
    python -m bench.attack --protocol oam --family lies

Each round starts a cluster, lets correct clients multicast in peace for some seconds, and then under attack. Attackers
are programs of their own. Those that need it have a certificate, and a token: one that allows nothing, or one that
allows everything. They come from other addresses than the correct clients, as 127.0.66.1. In the end (`_judge.py`)

- correct clients must have kept at least half of their throughput;
- no node may have ended;
- no node may ever have used 512 MB of memory;
- the checker must accept the trace of the run, and every message that was acknowledged must be there.
"""
