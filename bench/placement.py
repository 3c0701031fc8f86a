"""How long it takes until objects are where they are used: `python -m bench.placement`, in virtual time.

See `amcast.experiments.placement` for what is run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from amcast.experiments.placement import Measured


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.placement", description=__doc__)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=140, help="of virtual time")
    parser.add_argument("--policy", default="affinity", help="or '' for none")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    run = Measured(options.users, options.seconds, options.policy, options.seed)
    document = {"moves": len(run.moves_us), "stable_s": run.stable_s, **run.spread(), "bins": run.bins()}
    if options.json:
        print(json.dumps(document, indent=2))
        return 0
    print("   s  moves  one site  below 5 ms  median ms")
    for each in document["bins"]:
        shares = f"{each['single_site']:8.0%}  {each['below_5_ms']:10.0%}  {each['median_ms']:9.1f}"
        print(f"{each['from_s']:4}  {each['moves']:5}  {shares}")
    print(f"{document['moves']} moves, 99 % of them in the first {run.stable_s:.0f} s")
    print(f"users whose followers are at so many sites: {document['followers_at_sites']}")
    print(f"users of each site: {document['users_of_site']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
