"""Linearizability of what clients did: is there one order of all operations that explains every answer?

An operation takes effect at one moment between its call and its answer. So one that ended before another began stands
before it; two that overlap may stand either way. An operation without an answer may have taken effect at any moment
after its call, or never. With transactions, which do several things at one moment, the same is called strict
serializability.

Objects that no transaction ties together are judged apart: a history is linearizable if what was done with each of them
is. What was done with one set is judged apart for each value, unless somebody read the whole set.

    versions.py    registers whose written values differ: every read names its write. A few sorts, for all at once
    _lists.py      lists whose appended values differ: every read names its place in the order. Linear
    _counters.py   counters that never go down: totals that are too low or too high for the times
    _search.py     everything else: tries orders, and remembers what it has tried. Exact, until a budget is used up
    _smallest.py   leaves operations out of a history that has no order, as long as it then still has none
    _words.py      tells people why what is left has none
    judge.py       decides which way each object goes, and sums up
"""
