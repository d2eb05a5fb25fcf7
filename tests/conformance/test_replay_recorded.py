#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s, full 16 s
"""A replay that is recorded itself: `varve record -- varve replay TRACE` stores what the replay's allocator decided
as it would that of any program, so it must be, event for event and in order, what `varve replay -o` writes of the
same replay."""

import os

from pytorch_recordings import RECORDINGS, SMALL, expected_of, name_of, options_of, path_of, recording

# What an allocator's records hold; ids are rows, which the command's own heap has, too.
EVENTS = ("SELECT e.device, e.dev_seq, k.name, c.text, e.addr, e.size, e.requested, e.stream, e.pool, e.flags FROM"
          " event e JOIN event_kind k ON k.code = e.kind JOIN event_cause c ON c.code = e.cause"
          " WHERE k.grp = 'allocator' ORDER BY e.seq")
ALLOCATIONS = ("SELECT a.device, a.pool, a.stream, a.addr, a.size, a.requested, s.number, a.free_requested_seq IS NULL,"
               " a.free_completed_seq IS NULL FROM allocation a JOIN domain d ON d.code = a.domain"
               " LEFT JOIN segment s ON s.id = a.segment_id WHERE d.name = 'block' ORDER BY a.id")
SEGMENTS = ("SELECT device, pool, stream, addr, size, cause, number, is_expandable, free_seq IS NULL FROM segment"
            " ORDER BY number, addr, alloc_seq")
OTHER_RULES = ("--conf", "expandable_segments:True", "--capacity", "24G")


class ReplayRecorded(recording.Case):
    def setUp(self):
        if recording.IS_SANITIZED:
            self.skipTest("the recorder is not for sanitized programs, which varve is here")
        super().setUp()

    def replay(self, *arguments):
        """The command; the program that is recorded is the same one."""
        return [recording.VARVE, "replay", *map(str, arguments)]

    def tables(self, path):
        self.open(path)
        return {"events": self.sql(EVENTS), "allocations": self.sql(ALLOCATIONS), "segments": self.sql(SEGMENTS),
                "ooms": self.sql("SELECT device, requested, allocated, reserved, largest_free, stage FROM oom ORDER"
                                 " BY seq")}

    def compare(self, *arguments):
        written = os.path.join(self.folder, "written.db")
        outcome = recording.run(self.replay(*arguments, "--force", "-o", written))
        self.assertEqual(outcome.returncode, 0, outcome)
        self.record(*self.replay(*arguments), options=("--force", "--stacks", "none"))
        self.assert_finished()
        self.assert_no_loss()
        expected, found = self.tables(written), self.tables(self.path)
        self.assertGreater(len(expected["events"]), 0)
        self.assertGreater(len(expected["segments"]), 0)
        for name, rows in expected.items():
            self.assertEqual(len(found[name]), len(rows), name)
            for row, other in zip(found[name], rows):
                self.assertEqual(row, other, name)
        numbers = {}
        for device, number, *_ in found["events"]:
            self.assertEqual(number, numbers.get(device, 0) + 1, "the order of the device")
            numbers[device] = number
        self.assertEqual(self.one("SELECT count(DISTINCT thread_id) FROM event e JOIN event_kind k ON k.code = e.kind"
                                  " WHERE k.grp = 'allocator'"), 1)

    def test_each_recording(self):
        for path in recording.sample(RECORDINGS, *SMALL, "gpt2_train_expandable"):
            with self.subTest(path.name):
                self.compare("--verify", *options_of(expected_of(name_of(path))), path)

    def test_other_rules(self):
        self.compare(*OTHER_RULES, path_of("multistream_record"))

    def test_both(self):
        """With -o the same run goes to both."""
        path, written = RECORDINGS[0], os.path.join(self.folder, "both.db")
        self.record(*self.replay(path, "-o", written), options=("--stacks", "none"))
        self.assertEqual(self.tables(self.path), self.tables(written))
        self.record(*self.replay(*OTHER_RULES, path, "--force", "-o", written), options=("--force", "--stacks", "none"))
        self.assertEqual(self.tables(self.path), self.tables(written))

    def test_not_reproduced(self):
        """A replay that goes another way than the history has recorded nothing: it cannot say where it was right."""
        path = path_of("gpt2_train_roundup")
        self.record(*self.replay("--verify", "--memory-limit", "1G", path), options=("--stacks", "none"), status=2)
        self.assert_finished()
        self.assertEqual(self.sql(EVENTS), [])
        self.assertGreater(self.count("heap_alloc"), 0)

    def test_no_recorder(self):
        """The environment of a recording alone, without its library."""
        session = os.path.join(self.folder, "gone.db.d")
        outcome = recording.run(self.replay(RECORDINGS[0]), env={**os.environ, "VARVE_SESSION": session})
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertFalse(os.path.exists(session))


if __name__ == "__main__":
    recording.main()
