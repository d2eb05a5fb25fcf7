#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 16 s
"""How much a database keeps: totals are those of a recording that keeps everything, what needs events says what is
missing, and a killed recorder's totals are counted as lost."""

import json
import os
import sqlite3
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

# A loop whose heap is the same in every run, its malloc and free pairs aside: 20,000 of them, and 300 that stay.
SOURCE = """
import ctypes
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
for i in range(20000):
    libc.free(libc.malloc(7001))
for i in range(300):
    libc.malloc(7003)
"""

# what was live when main ended, and no longer at the end
FREED_LATE = "SELECT count(*) FROM leak WHERE domain = 'heap' AND free_ns IS NOT NULL"


class Keep(recording.Case):
    def record_loop(self, *options, then=""):
        outcome = self.record(sys.executable, "-c", SOURCE + then, options=["--stacks", "none", *options])
        self.open()
        return outcome

    def check_totals(self):
        rows = self.sql("SELECT allocations, frees, live_allocations, live_bytes, peak_bytes FROM total_stat"
                        " WHERE domain = 1 AND process_id = 0")
        self.assertEqual(len(rows), 1)
        allocations, frees, live, live_bytes, peak = rows[0]
        self.assertGreater(frees, 20000)
        self.assertEqual(allocations - frees, live - self.one(FREED_LATE))
        self.assertGreaterEqual(peak, live_bytes)
        self.assertEqual(self.one("SELECT sum(allocations) FROM callsite_stat WHERE domain = 1"), allocations)
        self.assertEqual(self.one("SELECT count(*) FROM leak WHERE domain = 'heap'"), live)
        self.assertEqual(self.one("SELECT sum(size) FROM leak WHERE domain = 'heap'"), live_bytes)
        self.assertEqual(self.one("SELECT count(*) FROM leak WHERE size = 7003"), 300)
        self.assertGreater(self.one("SELECT count(*) FROM timeline"), 10)

    def check_refusals(self, word):
        for arguments in (("segments", self.path), ("export", "--to", "pytorch", "-o", self.path + ".pickle",
                                                    self.path),
                          ("diff", "--events", self.path, self.path)):
            outcome = recording.varve(*arguments)
            self.assertEqual(outcome.returncode, 2, outcome)
            self.assertIn(word, outcome.err)
            self.assertEqual(outcome.err.count("\n"), 1, outcome)
        for command in ("report", "info"):
            self.assertIn(word, recording.varve(command, self.path).out)
        self.assertIn(word, recording.varve("query", self.path, "SELECT 1").err)

    def test_events(self):
        self.record_loop()
        self.check_totals()
        self.assertEqual(self.one("SELECT count(*) FROM allocation WHERE size = 7001"), 20000)
        self.assertEqual(json.loads(recording.varve("report", "--json", self.path).out)["keep"], "events")

    def test_allocations(self):
        self.record_loop("--keep", "allocations")
        self.check_totals()
        self.assertEqual(self.one("SELECT count(*) FROM event"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM allocation WHERE size = 7001"), 20000)
        self.assertEqual(self.one("SELECT count(*) FROM pragma_freelist_count WHERE freelist_count > 0"), 0)
        self.check_refusals("--keep allocations")

    def test_totals(self):
        self.record_loop("--keep", "totals")
        self.check_totals()
        self.assertEqual(self.one("SELECT count(*) FROM event"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM allocation WHERE size = 7001"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM allocation WHERE domain = 1 AND free_ns IS NOT NULL"),
                         self.one(FREED_LATE))
        self.check_refusals("--keep totals")

    # Sums by the functions on the way to an allocation: each call site once for each of them.
    BY_FUNCTION = """
        WITH RECURSIVE up(callsite_id, node) AS (
            SELECT id, node_id FROM callsite WHERE node_id IS NOT NULL
            UNION ALL SELECT callsite_id, parent_id FROM up JOIN stack_node ON id = node WHERE parent_id IS NOT NULL),
        way AS (SELECT DISTINCT callsite_id, function, module FROM up
                JOIN stack_node n ON n.id = node JOIN symbol s ON s.id = n.symbol_id)
        SELECT function, module, sum(allocations), sum(frees), sum(bytes), sum(live_allocations), sum(live_bytes),
            sum(peak_allocations), sum(peak_bytes), sum(temporary)
        FROM way JOIN callsite_stat USING (callsite_id) WHERE domain = 1 GROUP BY 1, 2"""

    def test_small_call_sites(self):
        command = [recording.program("many_stacks"), "small", "30000", "200000"]
        self.record(*command)
        self.open()
        expected = {row[:2]: row[2:] for row in self.sql(self.BY_FUNCTION)}
        sites = self.one("SELECT count(*) FROM callsite_stat")
        self.record(*command, options=["--keep", "totals"])
        self.open()
        found = {row[:2]: row[2:] for row in self.sql(self.BY_FUNCTION)}
        group = found.pop(("(smaller call sites)", None))
        # Functions that are left have no more than all of them; where all small ones are below, or none, exactly that.
        for key, sums in found.items():
            self.assertTrue(all(one <= other for one, other in zip(sums, expected[key])), key)
        for function in ("_start", "large", "large_leak"):
            key = next(key for key in found if key[0] == function)
            self.assertEqual(found[key], expected[key])
        self.assertNotIn("walk", [name for name, module in found])
        joined = self.one("SELECT value FROM stats WHERE name = 'callsites_joined'")
        self.assertGreaterEqual(joined, 30000)
        self.assertLess(self.one("SELECT count(*) FROM callsite_stat"), sites - joined + 1000)
        self.assertGreaterEqual(group[0], 30000)
        # The leak of one small call site is in the group's row, and says how large it is.
        self.assertEqual(self.sql("SELECT function FROM leak JOIN callsite c ON c.id = callsite_id"
                                  " JOIN symbol s ON s.id = c.symbol_id WHERE leak.size = 11"),
                         [("(smaller call sites)",)])
        self.assertEqual(self.sql("SELECT count(*) FROM leak JOIN frame USING (callsite_id)"
                                  " WHERE function = 'large_leak' AND size = 50021"), [(10,)])
        self.assertEqual(self.one("SELECT count(*) FROM callsite_stat LEFT JOIN callsite ON id = callsite_id"
                                  " WHERE id IS NULL"), 0)
        for command in ("report", "info"):
            self.assertIn("smaller call sites were put together", recording.varve(command, self.path).out)
        self.assertEqual(json.loads(recording.varve("report", "--json", self.path).out)["callsites_joined"], joined)

    def test_largest_size(self):
        later = "import time\ntime.sleep(1)\nfor size in range(5000): bytearray(size)\n"  # when all was committed
        outcome = self.record_loop("--max-size", "2M", then=later)
        self.check_totals()
        self.assertIn("--max-size", outcome.err)
        kept = self.one("SELECT value FROM meta WHERE key = 'kept_events'")
        self.assertEqual(self.one("SELECT count(*) FROM event"), kept)
        self.assertEqual(self.one("SELECT max(seq) FROM event"), kept)
        self.assertLess(kept, self.one("SELECT value FROM stats WHERE name = 'events_stored'"))
        self.check_refusals("--max-size")

    def record_and_kill(self, *options):
        seconds = 1.5 if recording.IS_FULL else 0.8  # of a program that allocates as fast as it can
        go = os.path.join(self.folder, "go")
        process = self.start_recording("sh", "-c", f"{recording.program('churn')} --seconds {seconds} --threads 2;"
                                       f" while [ ! -e {go} ]; do sleep 0.02; done; exit 0", options=options)
        recording.wait_until(self.has_committed, what="a commit of events")
        self.write("go")
        said = recording.json_lines(self.kill_collector(process))[0]
        outcome = self.varve("recover", self.path + ".d")
        self.open()
        self.check_told(said["allocs"] + said["frees"] + 2 * said["reallocs"])
        return outcome

    def has_committed(self):
        """So many events that some are of churn, and not of the shell."""
        try:
            connection = sqlite3.connect(f"file:{self.path}.d/trace.db?mode=ro", uri=True)
            try:
                query = "SELECT coalesce(max(tail + spill_tail), 0) > 5000 FROM ring_position"
                return connection.execute(query).fetchone()[0]
            finally:
                connection.close()
        except sqlite3.Error:
            return False

    def check_told(self, events):
        """What is in no total is told: frees too, of blocks whose allocation is not known."""
        told = dict(self.sql("SELECT name, value FROM data_loss"))
        told = sum(told.get(name, 0) for name in ("events_not_derived", "frees_unknown", "events_lost"))
        summarised = self.one("SELECT allocations + frees FROM total_stat WHERE domain = 1 AND process_id = 0")
        self.assertGreaterEqual(summarised + told, events)
        return told

    def test_killed_with_allocations(self):
        self.record_and_kill("--keep", "allocations")
        self.assert_finished()
        self.assertEqual(self.one("SELECT count(*) FROM event"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM data_loss"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM allocation WHERE domain = 1"),
                         self.one("SELECT allocations FROM total_stat WHERE domain = 1 AND process_id = 0"))

    def test_killed_with_totals(self):
        outcome = self.record_and_kill("--keep", "totals")
        self.assert_finished()
        self.assertIn("DATA LOSS", outcome.out + outcome.err)
        lost = self.one("SELECT value FROM data_loss WHERE name = 'events_not_derived'")
        self.assertGreater(lost, 0)
        self.assertLessEqual(lost, self.one("SELECT value FROM stats WHERE name = 'events_stored'"))
        self.assertEqual(self.one("SELECT sum(stored) FROM thread"),
                         self.one("SELECT value FROM stats WHERE name = 'events_stored'"))
        info = " ".join(recording.varve("info", self.path).out.split())
        self.assertIn(f"all summarised but {lost:,} whose sums went with a collector that was killed", info)
        unknown = self.one("SELECT value FROM stats WHERE name = 'frees_unknown'")
        words = f"{unknown:,} frees of blocks whose allocation was lost: in no total either"
        self.assertEqual(words in info, unknown > 1)

    def test_dropped(self):
        """Frees whose allocation was dropped, with no kill."""
        outcome = self.record(recording.program("churn"), "--seconds", "0.3", "--threads", "2", options=[
            "--stacks", "none", "--keep", "totals", "--overflow", "drop", "--ring-size", "4K"])
        said = json.loads(outcome.out)
        self.open()
        self.check_told(said["allocs"] + said["frees"] + 2 * said["reallocs"])
        self.assertGreater(self.one("SELECT value FROM data_loss WHERE name = 'frees_unknown'"), 0)


if __name__ == "__main__":
    recording.main()
