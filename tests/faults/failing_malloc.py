# SPDX-License-Identifier: Apache-2.0
"""The n-th allocation of `varve record`, `recover` or `import` fails: no crash, one line, exit status 2 or a reported
loss, and no half-written file. Used by test_failing_malloc.py with some n, and by `./dev stress` with others."""

import json
import os
import random
import struct
import sys
import traceback
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STEPS = struct.Struct("<QQ")
LIBRARY = recording.program("lib_failing_malloc.so")
SNAPSHOT = os.path.join(recording.ROOT, "tests", "conformance", "pytorch", "cudagraph_private_pool.pickle.xz")
SUBJECTS = ("record", "import", "recover")


class Case(recording.Case):
    def setUp(self):
        super().setUp()
        if os.environ.get("VARVE_SANITIZE", "none") not in ("none", "trap"):
            self.skipTest("a sanitizer has a malloc of its own")
        if not os.path.exists(LIBRARY):
            self.skipTest(f"{LIBRARY} is not built")

    def run_failing(self, number, for_ever, *command, name=os.path.basename(recording.VARVE)):
        """(outcome, allocations made): `command` with allocation `number` (0: none) of the program `name` failing."""
        steps = self.write("steps", STEPS.pack(number, 0))
        environment = {**os.environ, "LD_PRELOAD": LIBRARY, "VARVE_TESTS_FAIL_IN": name, "VARVE_TESTS_FAIL_FILE": steps}
        if for_ever:
            environment["VARVE_TESTS_FAIL_FOR_EVER"] = "1"
        outcome = recording.run(command, env=environment)
        with open(steps, "rb") as stream:
            return outcome, STEPS.unpack(stream.read())[1]


class FailingMalloc(Case):
    def runTest(self):
        """Not run by unittest: play() drives it."""

    def new_path(self, name):
        """A database's path in a folder that is empty but for it."""
        folder = os.path.join(self.folder, name)
        os.mkdir(folder)
        self.path = os.path.join(folder, "trace.db")
        return folder

    def assert_refused(self, folder, outcome, left=()):
        self.assertEqual(outcome.returncode, 2, outcome)
        self.assertEqual(len(outcome.err.strip().splitlines()), 1, outcome)
        self.assertEqual(sorted(os.listdir(folder)), sorted(left), ("left behind", outcome))

    def assert_reported(self, churn):
        """A database that is finished, and lacks nothing of what churn printed or says so."""
        self.assert_finished()
        self.assert_conserved()
        if self.sql("SELECT 1 FROM data_loss"):
            return
        self.assertGreaterEqual(self.count("heap_alloc"), churn["allocs"])

    def play(self, subject, number, for_ever=False):
        """One run; returns how many allocations there were."""
        folder = self.new_path(f"{subject}-{number}-{int(for_ever)}")
        return getattr(self, "play_" + subject)(folder, number, for_ever)

    def play_record(self, folder, number, for_ever):
        outcome, count = self.run_failing(number, for_ever, *self.record_command(
            recording.program("churn"), "--ops", "300", "--threads", "2", options=["--stacks", "native"]))
        said = recording.json_lines(outcome.out)
        if os.path.isdir(self.path + ".d"):
            # The program goes on, and so does its exit status; what was recorded is kept: said, and recoverable
            self.assertEqual(os.listdir(folder), ["trace.db.d"])
            self.assertEqual(len(outcome.err.strip().splitlines()), 1, outcome)
            self.assertIn("recover", outcome.err)
            self.assertIn(outcome.returncode, (0, 2), outcome)
            self.varve("recover", self.path + ".d")
            self.assert_reported(said[0] if said else {"allocs": 0})
        elif outcome.returncode == 0:
            self.assertEqual(len(said), 1, outcome)
            self.assert_reported(said[0])
        else:
            self.assert_refused(folder, outcome)
        return count

    def play_import(self, folder, number, for_ever):
        outcome, count = self.run_failing(number, for_ever, recording.VARVE, "import", SNAPSHOT, "-o", self.path)
        if outcome.returncode == 0:
            self.open()
            self.assertEqual(self.one("PRAGMA integrity_check"), "ok")
            self.assertGreater(self.one("SELECT count(*) FROM event"), 0)
            self.assertEqual(os.listdir(folder), ["trace.db"])
        else:
            self.assert_refused(folder, outcome)
        return count

    def play_recover(self, folder, number, for_ever):
        """Of a directory whose collector was killed; a recovery that fails leaves it, and the next one succeeds."""
        said = json.loads(self.kill_collector(self.start_recording(
            recording.program("churn"), "--seconds", "0.5", "--pace", "20", "--threads", "2",
            options=["--stacks", "native"])))
        outcome, count = self.run_failing(number, for_ever, recording.VARVE, "recover", self.path + ".d")
        if outcome.returncode != 0:
            self.assert_refused(folder, outcome, left=["trace.db.d"])
            self.varve("recover", self.path + ".d")
        self.assert_reported(said)
        return count


def play(seed, runs):
    """`runs` random steps of a random subject, decided by `seed`; a result as kill_round.play() gives it."""
    chance = random.Random(seed)
    subject = chance.choice(SUBJECTS)
    count, failures = 1, []
    for run in range(1 + runs):
        case = FailingMalloc()
        # The first run has all that it asks for, and says how much that is.
        number, for_ever = (0, False) if run == 0 else (chance.randint(1, count), chance.random() < 0.5)
        try:
            case.setUp()
            made = case.play(subject, number, for_ever)
            count = made if run == 0 else count
        except unittest.SkipTest as reason:
            return {"setting": subject, "failure": str(reason)}
        except Exception:  # the other steps are worth playing whatever it is
            failures.append(f"allocation {number}{' and all after it' if for_ever else ''}:\n{traceback.format_exc()}")
            if run == 0:
                break
        finally:
            case.doCleanups()
    return {"setting": f"malloc: {runs} of {count} allocations of {subject} failed",
            "failure": "\n".join(failures) or None}
