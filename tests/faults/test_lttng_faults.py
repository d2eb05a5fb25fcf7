#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 7 s
# Runs threads: LTTng's, in the collector.
"""LTTng that is missing, broken, in use by others, or killed: the recording goes on, says so in a line, and leaves
nothing behind."""

import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lttng_recording  # noqa: E402
import recording  # noqa: E402


def daemons():
    out = subprocess.run(["pgrep", "-x", "lttng-sessiond"], stdout=subprocess.PIPE, text=True, check=False).stdout
    return {int(pid) for pid in out.split() if recording.process_state(int(pid)) not in (None, "Z")}


class Faults(lttng_recording.Case):
    churn = (recording.program("churn"), "--ops", "500")

    def test_without_tools(self):
        environment = dict(self.environment, PATH=self.folder)
        outcome = self.record(*self.churn, options=["--lttng"], env=environment)
        lines = [line for line in outcome.err.splitlines() if "no LTTng trace" in line]
        self.assertEqual(len(lines), 1, outcome)
        self.assertIn("lttng", lines[0])
        self.assert_recording()
        self.assertFalse(os.path.exists(self.ctf))

    def test_without_tools_only_lttng(self):
        environment = dict(self.environment, PATH=self.folder)
        outcome = self.record(*self.churn, options=["--lttng-only"], status=2, env=environment)
        self.assertEqual(len(outcome.err.strip().splitlines()), 1, outcome)
        self.assertEqual(os.listdir(self.folder), ["home"])

    def test_without_the_provider(self):
        outcome = self.record(*self.churn, options=["--lttng"],
                              env=dict(self.environment, VARVE_PROVIDER=os.path.join(self.folder, "nothing.so")))
        self.assertIn("no LTTng trace", outcome.err)
        self.assert_recording()

    def test_sessions_of_others_are_left_alone(self):
        self.assertEqual(self.lttng("create", "mine", f"--output={self.folder}/mine").returncode, 0)
        self.assertEqual(self.lttng("enable-event", "-u", "-s", "mine", "other:*").returncode, 0)
        self.assertEqual(self.lttng("start", "mine").returncode, 0)
        self.record_both(*self.churn)
        self.assertEqual(self.sessions(), ["mine"])
        self.assertIn("[active]", self.lttng("list").stdout)
        self.assertEqual(self.lttng("destroy", "mine").returncode, 0)

    def test_the_trace_exists_already(self):
        os.mkdir(self.ctf)
        outcome = self.record(*self.churn, options=["--lttng"], status=2)
        self.assertIn(self.ctf, outcome.err)
        self.assertFalse(os.path.exists(self.path))
        self.record(*self.churn, options=["--lttng", "--force"])
        self.assert_equal_sinks()

    def test_forks_while_lttng_describes_the_process(self):
        """LTTng's thread holds LTTng's locks then: children that inherited them waited at their end for good."""
        process = self.start(self.record_command(recording.program("forker"), "storm", "400", options=["--lttng"]))
        described = 0
        while process.poll() is None:
            for session in self.sessions():
                described += self.lttng("regenerate", "statedump", "-s", session).returncode == 0
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertGreater(described, 0)
        self.assert_recording(may_know_unknown=True)
        self.assert_equal_sinks()

    def test_the_session_daemon_is_killed(self):
        """The program and its database do not notice."""
        process = self.start(self.record_command(recording.program("churn"), "--seconds", "2", "--pace", "100", "--ops",
                                                      "100000000", options=["--lttng"]))
        recording.wait_until(self.sessions, what="the recording's session")
        time.sleep(0.5)
        os.killpg(self.daemon.pid, signal.SIGKILL)
        outcome = recording.finish(process)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn("LTTng", outcome.err)
        self.assert_recording(may_know_unknown=True)

    def test_the_collector_is_killed(self):
        """`varve recover` ends the session and puts the trace beside the database."""
        process = self.start(self.record_command(recording.program("churn"), "--seconds", "2", "--pace", "100", "--ops",
                                                      "100000000", options=["--lttng"]))
        recording.wait_until(lambda: recording.program_of(process, "churn"), what="the program")
        time.sleep(0.7)
        process.kill()
        recording.finish_orphan(process)
        self.varve("recover", self.path + ".d")
        self.assertEqual(self.sessions(), [])
        self.assert_finished()
        self.assertTrue(os.path.isdir(self.ctf), os.listdir(self.folder))
        self.assertFalse(os.path.exists(self.path + ".d"))
        self.open(self.rebuild())
        self.assertGreater(self.count("heap_alloc"), 100)


class OwnDaemon(lttng_recording.Case):
    has_daemon = False

    def test_a_daemon_is_started_and_ended(self):
        before = daemons()
        self.record_both(recording.program("churn"), "--ops", "500")
        self.assert_equal_sinks()
        recording.wait_until(lambda: daemons() <= before, what="the end of the session daemon that was started")

    def test_a_program_that_cannot_be_started(self):
        before = daemons()
        self.record("/nowhere/at/all", options=["--lttng"], status=2)
        recording.wait_until(lambda: daemons() <= before, what="the end of the session daemon that was started")
        self.assertEqual(os.listdir(self.folder), ["home"])


if __name__ == "__main__":
    lttng_recording.main()
