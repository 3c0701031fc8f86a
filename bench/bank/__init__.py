"""The sharded bank of examples/bank under a nemesis: money is neither made nor lost, whatever crashes.

    python -m bench.bank --protocols fastcast,multipaxos --rounds 20

Each protocol gets a real cluster on loopback with `Bank` inside its nodes. Clients transfer money between accounts of
all groups, often more than there is, query balances and read totals, by the public calls of amcast alone. Meanwhile
each round strikes once: kill -9 of a node, a leader, a group or all, also in the middle of a restart; SIGTERM; SIGSTOP;
cut links; restarts in turn; a node whose data folder is emptied, and which `amcast replace` brings back. Clients lose
patience and ask again under the same key, are replaced by others under the same name, and are killed in the middle of a
call. In the end (`_judge.py`)

- every total that anybody read is the money that was deposited;
- every balance that anybody read is one that the account can have had at that time, by what was answered to whom: an
  account that only one client touches shows what this client knows at once, and nothing that was read is taken back;
- every transfer that was done could be done, and every refused one could be refused; each has one answer, which it gets
  again when it is repeated with its key; balances in the end are those that follow from the answers;
- after an orderly stop, the replicas of a group are at the same position, in the same state.
"""

from ._judge import History, Query, Total, Transfer, judge
from ._run import FAULTS, Result, run

__all__ = ["FAULTS", "History", "Query", "Result", "Total", "Transfer", "judge", "run"]
