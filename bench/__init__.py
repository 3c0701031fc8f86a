"""Benchmarks: `python -m bench` measures how fast simulator and checker are, and holds each figure against its target.

Machines differ and are shared, so everything is counted in CPU time (`time.process_time`), never on the wall clock.
The two sides of a ratio are measured in one run, in turns, and a measurement is repeated: the best of the rounds
counts, because a neighbour on the machine can only make a round slower.
"""
