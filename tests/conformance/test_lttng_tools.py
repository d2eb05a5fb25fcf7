#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
"""The trace in the hands of others: babeltrace2 prints named fields and labels, a database is made of the trace alone,
and the state of a program is emitted when tracing begins in mid-run."""

import glob
import os
import re
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lttng_recording  # noqa: E402
import recording  # noqa: E402

FIELDS = ("process", "ring", "ring_seq", "ticks", "pid", "tid", "device", "dev_seq", "stream", "pool", "id", "addr",
          "size", "requested", "arg", "cause", "callsite", "flags")


class Tools(lttng_recording.Case):
    def babeltrace(self, *arguments, status=0):
        outcome = recording.run(["babeltrace2", *arguments], **self.identity)
        self.assertEqual(outcome.returncode, status, outcome)
        return outcome.out

    def test_babeltrace_prints_names_and_labels(self):
        self.record_both(recording.program("churn"), "--ops", "500", options=["--stacks", "none"])
        self.open()
        lines = [line for line in self.babeltrace(self.ctf).splitlines() if " varve:heap_alloc: " in line]
        self.assertEqual(len(lines), self.count("heap_alloc"))
        for name in FIELDS:
            self.assertIn(f" {name} = ", lines[-1])
        self.assertRegex(lines[-1], r'cause = \( "(malloc|calloc)" : container = \d+ \)')
        self.assertRegex(lines[-1], r"addr = 0x[0-9A-F]+,")
        sizes = sorted(int(re.search(r" size = (\d+),", line).group(1)) for line in lines)
        self.assertEqual(sizes, sorted(size for size, in self.sql("SELECT size FROM events WHERE kind = 'heap_alloc'")))

    def test_only_lttng(self):
        outcome = self.record(recording.program("churn"), "--ops", "500", options=["--lttng-only"])
        self.assertFalse(os.path.exists(self.path), "a database all the same")
        self.assertFalse(os.path.exists(self.path + ".d"))
        self.assertIn("varve import", outcome.err)
        self.open(self.rebuild())
        self.assertGreater(self.count("heap_alloc"), 1000)
        self.assertEqual(self.sql("SELECT name, value FROM data_loss"), [])

    def test_a_trace_that_begins_in_mid_run(self):
        """The program goes on for a while; a session of the user's begins after it did."""
        output = os.path.join(self.folder, "late")
        process = self.start(self.record_command(recording.program("churn"), "--seconds", "100", "--pace", "200",
                                                      "--ops", "100000000",
                                                      options=["--lttng", "--stacks", "native"]))
        recording.wait_until(lambda: self.sessions(), what="the recording's session")
        program = recording.wait_until(lambda: recording.program_of(process, "churn"), what="the program")
        recording.wait_until(lambda: glob.glob(f"{self.path}.d/ring/p*.r*"), what="events before the session")
        for arguments in (("create", "late", f"--output={output}"), ("enable-event", "-u", "-s", "late", "varve:*")):
            self.assertEqual(self.lttng(*arguments).returncode, 0)

        def seen():
            for step in ("start", "stop"):
                self.assertEqual(self.lttng(step, "late").returncode, 0)
            text = self.babeltrace(output)
            return "varve:meta_process:" in text and text.count("varve:heap_alloc:") > 200

        recording.wait_until(seen, what="the events of the program in the late session")
        self.assertEqual(self.lttng("destroy", "late").returncode, 0)
        os.kill(program, signal.SIGTERM)
        self.assertEqual(recording.finish(process).returncode, -signal.SIGTERM)
        self.open(self.rebuild(output))
        self.assertGreater(self.count("heap_alloc"), 100)
        self.assertEqual(self.count("lost", "ring_seq IS NULL") > 0, True,
                         "the beginning is missing, and nothing says so")
        self.assertGreater(self.one("SELECT count(*) FROM frame WHERE function IS NOT NULL"), 0)


if __name__ == "__main__":
    lttng_recording.main()
