"""Benchmarks. `python -m bench` measures the speed of the simulator and the checker, and compares it with targets.

Machines differ and are shared, so CPU time (`time.process_time`) is measured, not wall time. The two sides of a ratio
are measured in one run, in turns, and every measurement is repeated: the best of the rounds counts, because other
programs on the machine can only make a round slower.
"""
