#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 6 s, full 12 s
"""SIGKILL while a program traces flat out to both sinks (VARVE_LTTNG_KILLS times, default 3): the database has every
record of the rings, and what LTTng lacks of them is counted to the record: in the last line of `varve record`, and in
what `varve import` makes of the trace. Prints a line per kill."""

import os
import random
import re
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lttng_recording  # noqa: E402
import recording  # noqa: E402

KILLS = int(os.environ.get("VARVE_LTTNG_KILLS") or 3)
SEED = int(os.environ.get("VARVE_LTTNG_SEED", "1"))


class Kill(lttng_recording.Case):
    def record_and_kill(self, chance, *options):
        threads = chance.choice((1, 2, 4))
        command = self.record_command(recording.program("churn"), "--seconds", "5", "--ops", "100000000", "--threads",
                                      str(threads), "--seed", str(chance.randrange(1, 10**9)),
                                      options=["--lttng", "--force", "--stacks", "none", *options])
        process = self.start(command)
        program = recording.wait_until(lambda: recording.program_of(process, "churn"), what="the program")
        time.sleep(0.05 + chance.random() * (0.35 if recording.IS_FULL else 0.1))
        return threads, process, program

    def compare(self, said, threads):
        """What is missing in the trace, as the database that is made of it says."""
        self.assert_finished()
        found = self.diff(self.rebuild())
        # A record is emitted to LTTng before it is committed: one that a thread was about to commit is in the trace
        # alone.
        # A free whose allocation LTTng lost is one of an unknown address; nothing else differs.
        kinds = {kind["kind"] for kind in found["kinds"] if kind["differing"]}
        self.assertLessEqual(kinds, {"heap_free", "heap_realloc"} if said else set(), found)
        self.assertLessEqual(set(found["fields"] if kinds else ()), {"id", "size", "cause"}, found)
        self.assertLessEqual(found["only_in_b"], threads, found)
        self.assertEqual(found["only_in_a"], said, found)
        return found

    def test_what_lttng_lacks_is_counted(self):
        chance = random.Random(SEED)
        for kill in range(1, KILLS + 1):
            threads, process, program = self.record_and_kill(chance)
            os.kill(program, signal.SIGKILL)
            outcome = recording.finish(process)
            self.assertEqual(outcome.returncode, -signal.SIGKILL, outcome)
            self.assertNotIn("is not known", outcome.err)
            said = re.search(r"LTTng trace: [^;]*, which lacks ([0-9,]+) of the events", outcome.err)
            said = int(said.group(1).replace(",", "")) if said else 0
            self.open()
            events = self.one("SELECT count(*) FROM event")
            self.compare(said, threads)
            print(f"kill {kill}: {threads} threads, {events:8} events, {said} of them not in the LTTng trace",
                  flush=True)

    def test_after_a_recovery_too(self):
        """Both are killed: what only the collector would have emitted is missing in the trace."""
        _, process, program = self.record_and_kill(random.Random(SEED + 1))
        process.kill()
        os.kill(program, signal.SIGKILL)
        recording.finish_orphan(process)
        outcome = self.varve("recover", self.path + ".d")
        said = re.search(r"the LTTng trace \S+ lacks ([0-9,]+) of them", outcome.out)
        said = int(said.group(1).replace(",", "")) if said else 0
        self.open()
        events = self.one("SELECT count(*) FROM event")
        self.open(self.rebuild())
        self.assertLessEqual(abs(events - said - self.one("SELECT count(*) FROM event WHERE kind <> 53")), 4)


if __name__ == "__main__":
    lttng_recording.main()
