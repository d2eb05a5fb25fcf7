#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s
"""Curves over time: what is held while few events occur is seen for as long as it is held, and the peak is a point of
the curve, at its time, however many events there are: in the views, in `varve timeline`, and where only totals are
kept."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

BYTES, HELD_MS, BURST = 50_000_000, 400, 100_000


class Timeline(recording.Case):
    def check(self, *options):
        self.record(recording.program("plateau"), str(BYTES), str(HELD_MS), str(BURST), options=options)
        self.open()
        for view, moment, of in (("timeline", "peak_time", "1"),
                                 ("timeline_process", "peak_time_process", "process_id = 1")):
            rows = self.sql(f"SELECT ts_ns, allocated FROM {view} WHERE domain = 'heap' AND {of} ORDER BY seq")
            self.assertLess(len(rows), 2 * BURST / 10)  # it is thinned
            ((peak, peak_ns),) = self.sql(f"SELECT bytes, ts_ns FROM {moment} WHERE domain = 'heap' AND {of}")
            self.assertEqual(max(allocated for _, allocated in rows), peak)
            self.assertEqual(next(ns for ns, allocated in rows if allocated == peak), peak_ns)
            held = sum(end - begin for (begin, allocated), (end, _) in zip(rows, rows[1:]) if allocated >= BYTES)
            self.assertGreaterEqual(held, HELD_MS * 1_000_000)
        (told,) = recording.json_lines(self.varve("timeline", "--domain", "heap", "--points", "200", "--json",
                                                  self.path).out)
        held = [point for point in told["points"] if point["allocated_max"] >= BYTES]
        self.assertGreaterEqual(held[-1]["end_ns"] - held[0]["begin_ns"], HELD_MS * 1_000_000)
        self.assertEqual(len(held), 1 + told["points"].index(held[-1]) - told["points"].index(held[0]))
        self.assertEqual(max(point["allocated_max"] for point in told["points"]), peak)
        (at,) = [point for point in told["points"] if point["begin_ns"] <= peak_ns < point["end_ns"]]
        self.assertEqual(at["allocated_max"], peak)

    def test_events(self):
        self.check()

    def test_totals(self):
        self.check("--keep", "totals")


if __name__ == "__main__":
    recording.main()
