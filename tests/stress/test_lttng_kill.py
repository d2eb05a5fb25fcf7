#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Slow: programs that trace are killed.
"""SIGKILL while a program of four threads traces flat out to both sinks (VARVE_LTTNG_KILLS times, default 20): the LTTng
trace, what lttng-crash finds in its buffers and what the collector tells again hold together every event that the rings
held, equal in all fields. Prints a line per kill with what each part contributed."""

import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lttng_recording  # noqa: E402
import recording  # noqa: E402

# The program and its recorder are never sanitized: there fewer will do.
KILLS = int(os.environ.get("VARVE_LTTNG_KILLS") or (20 if os.environ.get("VARVE_SANITIZE", "none") == "none" else 3))
SEED = int(os.environ.get("VARVE_LTTNG_SEED", "1"))


class Kill(lttng_recording.Case):
    def record_and_kill(self, chance):
        threads = chance.choice((1, 2, 4))
        command = self.record_command(recording.program("churn"), "--seconds", "5", "--ops", "100000000", "--threads",
                                      str(threads), "--seed", str(chance.randrange(1, 10**9)),
                                      options=["--lttng", "--force", "--stacks", chance.choice(("none", "native"))])
        process = self.start(command)
        program = recording.wait_until(lambda: recording.program_of(process, "churn"), what="the program")
        time.sleep(0.1 + chance.random() * 0.8)
        os.kill(program, signal.SIGKILL)
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, -signal.SIGKILL, outcome)
        return threads, outcome

    def parts(self, kinds=("ust", "crash", "salvaged")):
        return [kind for kind in kinds if os.path.isdir(os.path.join(self.ctf, kind))]

    def test_every_event_of_the_rings_is_in_the_trace(self):
        chance = random.Random(SEED)
        total = tails = 0
        kill = 0
        while kill < KILLS:
            threads, outcome = self.record_and_kill(chance)
            self.assert_finished()
            events = self.one("SELECT count(*) FROM event")
            if events < 1000:
                continue  # killed before it had begun
            kill += 1
            found = self.diff(self.rebuild())
            # A record is told before it is committed: one that a thread was about to commit is in the trace alone.
            self.assertEqual(found["only_in_a"], 0, (found, outcome))
            self.assertEqual(found["differing"], 0, (found, outcome))
            self.assertLessEqual(found["only_in_b"], threads, found)
            tails += found["only_in_b"]
            total += events
            print(f"kill {kill:2}: {threads} threads, {events:8} events, in {' + '.join(self.parts())};"
                  f" {found['only_in_b']} told, but not committed", flush=True)
        print(f"{KILLS} kills, {total} events of the rings, none missing; {tails} more in the traces")


if __name__ == "__main__":
    lttng_recording.main()
