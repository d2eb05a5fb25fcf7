#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s
"""`varve record --cupti` from end to end without a GPU: a program that loads libvarve-cupti.so as the driver does and
plays the driver through a fake CUPTI (programs/cuda/cupti_play.c). What is looked at is the database: rows, domains,
call sites and CUPTI's own story. That each call becomes the right record is unit/test_cupti_recorder's."""

import json
import os
import sqlite3
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import recording  # noqa: E402

FAKE = recording.program("lib_cupti_fake.so")
PLAY = recording.program("cupti_play")
DEVICE, PINNED, MANAGED, CUPTI = "device", "pinned", "managed", "cupti"


class CuptiFake(recording.Case):
    def setUp(self):
        super().setUp()
        for needed in (FAKE, PLAY, os.path.join(os.path.dirname(recording.VARVE), "libvarve-cupti.so")):
            if not os.path.exists(needed):
                self.skipTest(f"{needed} is not built")

    def play(self, scene, *options, fake="", library=FAKE):
        outcome = self.record(PLAY, scene, options=options or ("--cupti",),
                              env=dict(os.environ, VARVE_FAKE_LIBRARY=FAKE, VARVE_CUPTI_LIBRARY=library,
                                       VARVE_FAKE_CUPTI=fake))
        self.assert_finished()
        self.assert_no_loss()
        return outcome

    def rows(self, domain):
        return self.sql("SELECT a.addr, a.size FROM allocation a JOIN domain d ON d.code = a.domain WHERE d.name = ?"
                        " ORDER BY a.alloc_seq", domain)

    def story(self):
        return [row[0] for row in self.sql("SELECT state FROM cupti_state ORDER BY seq")]

    def report(self):
        return json.loads(recording.varve("report", "--json", self.path).out)["gpu"]["cupti"]

    def total(self, domain):
        return self.sql("SELECT sum(allocations), sum(frees), sum(live_allocations) FROM "
                        + ("cupti_total" if domain == "cupti" else f"total WHERE domain = '{domain}'"))[0]

    # ---- alone: it is the recorder of the device ----

    def test_linear(self):
        self.play("linear")
        self.assertEqual(self.story(), ["cupti_begin", "cupti_clock", "cupti_clock", "cupti_end"])
        self.assertEqual(self.rows(DEVICE)[:2], [(0x7000000000, 4096), (0x7000001000, 5120)])
        self.assertEqual(self.rows(PINNED), [(0x7000020000, 100), (0x7000030000, 200), (0x7000040000, 300)])
        self.assertEqual(self.rows(MANAGED), [(0x7000010000, 8192)])
        self.assertEqual(self.rows(CUPTI), [])
        self.assertEqual(self.total(PINNED), (3, 2, 1))
        self.assertEqual(self.one("SELECT name FROM device"), "Fake GPU 0")

    def test_callsites(self):
        self.play("linear")
        frames = self.sql("SELECT f.function FROM events e JOIN frame f USING(callsite_id) WHERE e.kind = 'dev_alloc'"
                          " AND e.addr = ?", 0x7000000000)
        self.assertIn(("play_linear",), frames)
        self.assertIn(("main",), frames)

    def test_scenes(self):
        """What each scene must have in the database; which GPU a number means is known before its first event."""
        first = "SELECT kind FROM events WHERE device = {} AND kind IN ('device', 'vmm_reserve', 'vmm_create') ORDER" \
                " BY seq LIMIT 1"
        for scene, *expected in (
                ("virtual",
                 ("SELECT kind, handle FROM vmm WHERE kind IN ('vmm_create', 'vmm_map', 'vmm_release') ORDER BY seq"
                  " LIMIT 3", [("vmm_create", 0x77), ("vmm_map", 0x77), ("vmm_create", 0x77)]),
                 # retained once more and released once: one reference is left, and no mapping
                 ("SELECT count(*) FROM allocation WHERE addr = 0x7200000000 AND size = 2 << 20", [(1,)]),
                 (first.format(0), [("device",)]), (first.format(1), [("device",)])),
                ("failures",
                 ("SELECT count(*) FROM events WHERE kind = 'dev_oom'", [(1,)]),
                 ("SELECT function, result FROM device_failure ORDER BY seq LIMIT 2",
                  [("cuMemAlloc", 2), ("cuMemAlloc", 1)]),
                 ("SELECT count(*) FROM allocations WHERE domain = 'device'", [(0,)])),
                ("graph",
                 ("SELECT cause, flags & 1 FROM events WHERE kind = 'dev_alloc_async' ORDER BY seq",
                  [("graph", 0), ("graph", 1), ("cuMemAllocAsync", 0), ("cuMemAllocAsync", 0)])),
                ("activity",
                 ("SELECT op, addr, size, memory_kind, correlation_id, device FROM cupti_memory ORDER BY seq",
                  [("allocation", 0x7000, 4096, 3, 17, 1), *[("release", 0x7000, 4096, 3, 17, 1)] * 2]),
                 ("SELECT op, handle, bytes, release_threshold, used_bytes FROM cupti_pool WHERE op LIKE 'pool_%' ORDER"
                  " BY seq", [(op, 0x9000, 100, 200, 50) for op in ("pool_created", "pool_destroyed_by_driver")]))):
            with self.subTest(scene):
                self.play(scene, "--cupti", "--force")
                for query, rows in expected:
                    self.assertEqual(self.sql(query), rows)

    def test_threads(self):
        self.play("threads", "--cupti", "--stacks", "none")
        self.assertEqual(self.total(DEVICE), (8000, 8000, 0))
        self.assertEqual(self.sql("SELECT sum(calls), sum(failed) FROM device_call WHERE activity = 'free'"),
                         [(8000, 0)])

    # ---- beside the CUDA recorder: a second source ----

    def test_duplicate(self):
        self.play("linear", "--cuda", "--cupti")
        self.assertEqual(self.rows(DEVICE), []) # the fake is no driver that it could have seen
        self.assertEqual(self.rows(CUPTI)[:2], [(0x7000000000, 4096), (0x7000001000, 5120)])
        self.assertEqual(self.sql("SELECT count(*) FROM cupti_difference")[0][0], len(self.rows(CUPTI)))
        # what only one of the two could report is none: as if CUPTI had been given up before all of it
        with sqlite3.connect(self.path) as connection:
            connection.execute("UPDATE event SET cause = (SELECT code FROM event_cause WHERE text = 'cupti_end'), arg"
                               " = 1 WHERE cause = (SELECT code FROM event_cause WHERE text = 'cupti_begin')")
            self.assertEqual(connection.execute("SELECT count(*) FROM cupti_difference").fetchone(), (0,))
        connection.close()

    # ---- not there, not for us ----

    def test_refused(self):
        outcome = self.play("alone", fake="taken")
        self.assertEqual(self.sql("SELECT state, arg FROM cupti_state"), [("cupti_refused", 39)])
        self.assertIn("CUPTI for somebody", outcome.err)
        self.assertEqual([state["refused"] for state in self.report()["states"]], ["subscription"])
        self.assertIn("did not get it (CUptiResult 39)", recording.varve("report", self.path).out)

    def test_activity_refused(self):
        """A version whose records are unknown: the subscription is ours, and calls are reported."""
        self.play("linear", fake="future")
        self.assertEqual(self.story()[:3], ["cupti_begin", "cupti_clock", "cupti_refused"])
        self.assertEqual([state["refused"] for state in self.report()["states"][:3]], [None, None, "activity"])
        text = recording.varve("report", self.path).out
        self.assertIn("1 process got callbacks and no activity records", text)
        self.assertNotIn("did not get it", text)
        self.assertEqual(self.rows(DEVICE)[:1], [(0x7000000000, 4096)])

    def test_missing(self):
        outcome = self.play("alone", library="/nowhere/libcupti.so")
        self.assertEqual(self.story(), ["cupti_refused"])
        self.assertIn("CUPTI is not used in this process", outcome.err)

    def test_fork(self):
        self.play("fork")
        self.assertEqual(self.total(DEVICE)[0], 2)
        self.assertEqual(self.story().count("cupti_end"), 1)


if __name__ == "__main__":
    recording.main()
