#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 6 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
"""The figures of the Python package: that each can be made of every kind of trace, has what the views have, and shows
names as text; those of what the commands print."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from python_packages import ROOT, needs  # noqa: E402
from python_traces import Case  # noqa: E402
import recording  # noqa: E402
import varve  # noqa: E402


@needs("pandas", "pyarrow", "plotly")
class Figures(Case):
    def test_figures(self):
        makers = ("timeline", "ladder", "lifetimes", "flame_graph", "block_map")
        for path in [self.trace(name) for name in ("totals", "storages", "short")] + [self.hostile()]:
            with varve.open(path) as trace:
                for maker in makers:
                    figure = getattr(trace.plot, maker)()
                    text = figure.to_json()
                    self.assertNotIn("<script", text, (path, maker))
                    has_something = len(figure.data) > 0 or len(figure.layout.annotations) == 1
                    self.assertTrue(has_something, (path, maker))
        with varve.open(self.trace("resnet")) as trace:
            for metric in ("peak", "allocated", "leaked", "temporary"):
                for inverted in (False, True):
                    data = trace.plot.flame_graph(metric, inverted=inverted, min_share=0).data[0]
                    total = {"peak": "peak_bytes", "allocated": "bytes", "leaked": "live_bytes",
                             "temporary": "temporary"}[metric]
                    self.assertEqual(data.values[0], trace.callsites[trace.callsites.domain == "block"][total].sum())
                    children = {}
                    for parent, value in zip(data.parents, data.values):
                        children[parent] = children.get(parent, 0) + value
                    for identity, value in zip(data.ids, data.values):
                        self.assertLessEqual(children.get(identity, 0), value)
            for inverted in (False, True):
                self.check_outermost(trace, inverted)
            part = trace.plot.block_map(start_ns=400_000_000, end_ns=450_000_000, color="inner")
            self.assertLess(sum(len(one.x) for one in part.data),
                            sum(len(one.x) for one in trace.plot.block_map().data))
            self.assert_one_line(lambda: trace.plot.flame_graph("nothing"), "peak")

    def check_outermost(self, trace, inverted):
        """Frames below the root are those of `varve tree`, which folds as the page does."""
        tree = json.loads(recording.varve("tree", "--json", "--depth", "1", "--min-share", "0", "--top", "1000000",
                                          *["--inverted"] * inverted, trace.path).out)
        wanted = sorted(node["bytes"] for node in tree["nodes"] if node["depth"] == 1)
        data = trace.plot.flame_graph(inverted=inverted, min_share=0).data[0]
        self.assertEqual(sorted(value for parent, value in zip(data.parents, data.values) if parent == "0"), wanted)

    def test_figures_of_the_commands(self):
        from varve import plot
        compared = recording.varve("compare", "--json", "--policies", "pytorch,plan", self.trace("resnet")).out
        self.assertEqual(len(plot.policies(compared).data[0].y), 2)
        rows = [{"policy": "plan", "trace": trace, "peak_reserved": 7, "load_bytes": 5}
                for trace in ("/a/t.db", "/b/t.db", "/b/u.db", "/b/u.db")]
        self.assertEqual(sorted(plot.policies(rows).data[0].y),
                         ["plan a/t.db", "plan b/t.db", "plan u.db", "plan u.db (2)"])
        log = os.path.join(ROOT, "tests", "golden", "training.log")
        swept = recording.varve("dtr", "--sweep", "0.3:1:0.1", "--json", log).out
        self.assertGreater(len(plot.budget_curve(swept).data[0].x), 2)
        self.assert_one_line(lambda: plot.budget_curve(compared), "sweep")
        self.assert_one_line(lambda: plot.policies("{"), "JSON")


if __name__ == "__main__":
    recording.main()
