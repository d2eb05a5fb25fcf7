#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 2 s
"""Resident memory beside the heap: the program's own peak to the byte that waitpid knows, and that of its children as
far as they lived long enough to be looked at."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

MIB = 1 << 20
PROGRAM = f"""
import os, resource, time
if os.fork() == 0:
    held = bytearray({48 * MIB})
    time.sleep(1)
    os._exit(0)
os.wait()
short = bytearray({160 * MIB})
del short
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


class Rss(recording.Case):
    def test_peaks(self):
        outcome = self.record(sys.executable, "-c", PROGRAM, options=recording.PLAIN)
        self.assert_recording()
        known = int(outcome.out)
        parent, child = [peak for peak, in self.sql("SELECT peak_rss_bytes FROM process WHERE end_cause <> 'exec'"
                                                    " ORDER BY parent_id IS NOT NULL, id")][-2:]
        self.assertGreaterEqual(parent, 160 * MIB)
        self.assertLess(abs(parent - known), MIB)
        self.assertTrue(48 * MIB <= child < 100 * MIB, child)
        self.assertEqual(self.one("SELECT rss_bytes FROM rss_peak"), parent)
        self.assertGreaterEqual(self.one("SELECT max(rss_bytes_max) FROM rss_total"), child)
        self.assertGreater(self.one("SELECT count(*) FROM rss_total"), 10)
        self.assertEqual(self.one("SELECT count(*) FROM rss r JOIN process p ON p.id = r.process_id"
                                  " WHERE r.ts_ns NOT BETWEEN p.start_ns AND p.end_ns"), 0)


if __name__ == "__main__":
    recording.main()
