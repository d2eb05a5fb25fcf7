#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
"""Programs that confine themselves (seccomp, PR_SET_TSC) live on under the recorder, and what could not be recorded is
reported. The program confined.c dies by the first system call, or reading of the clock, that it does not expect."""

import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

CONFINED = recording.program("confined")
PAIRS = 5000
STACKS = ("none", "native", "python", "all")


class Confined(recording.Case):
    def confine(self, how, stacks="none", options=()):
        """How many pairs the program says that it made; it ended as without the recorder."""
        plain = recording.run([CONFINED, how, str(PAIRS)])
        if "no seccomp" in plain.err:
            self.skipTest(plain.err.strip())
        self.assertEqual(plain.returncode, 0, plain)
        outcome = self.record(CONFINED, how, str(PAIRS), options=["--stacks", stacks, *options])
        self.open()
        return json.loads(outcome.out)["pairs"], outcome

    def lost(self):
        return self.one("SELECT coalesce(sum(value), 0) FROM data_loss WHERE name IN ('events_lost',"
                        " 'events_unattached')")

    def check_complete(self, how):
        for stacks in STACKS:
            with self.subTest(stacks=stacks):
                pairs, outcome = self.confine(how, stacks)
                self.assertEqual(self.pairs(1234), (pairs, pairs), outcome)
                self.assertIn("nothing lost", outcome.err)
                self.assert_finished()
                self.assert_conserved()

    def test_filter_that_kills(self):
        self.check_complete("kill")

    def test_filter_that_refuses(self):
        self.check_complete("errno")

    def test_filter_of_one_thread(self):
        self.check_complete("thread")

    def test_filter_before_the_first_event(self):
        self.check_complete("late")

    def test_strict_mode(self):
        self.check_complete("strict")

    def test_clock_taken_away(self):
        self.check_complete("tsc")

    def test_filter_of_all_threads(self):
        """The others' rings were not made ready for it: what they can't hold is lost, and reported."""
        for stacks in STACKS:
            with self.subTest(stacks=stacks):
                pairs, outcome = self.confine("tsync", stacks)
                self.assertEqual(sum(self.pairs(1234)) + self.lost(), 2 * pairs, outcome)
                self.assertEqual("nothing lost" in outcome.err, self.lost() == 0, outcome)
                self.assert_conserved()

    def test_call_sites_that_are_known_are_kept(self):
        self.confine("kill", "native")
        self.assertEqual(self.count("heap_alloc", "size = 1234 AND callsite_id > 0"), 2 * PAIRS)

    def test_times_do_not_go_back(self):
        for how in ("strict", "tsc"):
            self.confine(how)
            self.assert_sane_rows()

    def test_what_can_not_be_recorded_is_counted(self):
        """A fork child of a confined process gets no ring; a program that a confined one executes no page."""
        for how in ("fork", "exec"):
            with self.subTest(how=how):
                pairs, outcome = self.confine(how)
                allocations, frees = self.pairs(1234)
                self.assertLess(allocations, pairs)
                self.assertGreaterEqual(allocations + frees + self.lost(), 2 * pairs, outcome)
                self.assertNotIn("nothing lost", outcome.err)

    def test_more_than_the_ring_holds(self):
        """No spill, no waiting: stored and lost add up."""
        pairs, outcome = self.confine("kill", options=["--ring-size", "4K"])
        allocations, frees = self.pairs(1234)
        self.assertEqual(allocations + frees + self.lost(), 2 * pairs, outcome)
        self.assert_conserved()


if __name__ == "__main__":
    recording.main()
