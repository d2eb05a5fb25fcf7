# SPDX-License-Identifier: Apache-2.0
"""python3 -m varve export DB… --to parquet -o DIR: traces as files of Parquet or Arrow. `varve export` runs it."""

from __future__ import annotations

import argparse
import sys

from .export import FORMATS, VIEWS, run_names, to_parquet
from .reading import TIMEOUT_S, TraceError
from .trace import Trace


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python3 -m varve", description="Trace databases of varve for other tools.")
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export",
                                 help="write views as Parquet or Arrow files, partitioned by run, rank and device")
    export.add_argument("databases", nargs="+", metavar="DB")
    export.add_argument("-o", "--output", required=True, metavar="DIR", help="where; other runs may be there already")
    export.add_argument("--to", choices=FORMATS, default="parquet")
    export.add_argument("--views", default=",".join(VIEWS), metavar="VIEW,…", help="default: %(default)s")
    export.add_argument("--run", metavar="NAME",
                        help="name of the run, of one DB (default: the file's, with the folders that tell several "
                        "apart)")
    export.add_argument("-j", "--jobs", type=int, metavar="N", help="threads (default: the processors)")
    export.add_argument("-f", "--force", action=argparse.BooleanOptionalAction, default=False,
                        help="replace a run of the same name")
    export.add_argument("-q", "--quiet", action="store_true", help="print nothing")
    export.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS",
                        help="how long reading a batch of rows may compute (default: %(default)g; 0: no limit)")
    chosen = parser.parse_args(arguments)
    if chosen.run is not None and len(chosen.databases) > 1:
        parser.error("--run names one database")
    try:
        names = run_names(chosen.databases)
        for path in dict.fromkeys(chosen.databases):
            with Trace(path, chosen.timeout or None) as trace:
                summary = to_parquet(trace, chosen.output, [view for view in chosen.views.split(",") if view],
                                     run=chosen.run or names[path],
                                     jobs=chosen.jobs, format=chosen.to, force=chosen.force)
            if not chosen.quiet:
                print(f"{path}: {summary}")
    except TraceError as error:
        print(f"varve: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
