#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s
"""`varve import` of a trace that LTTng has written, and the same through babeltrace2's own command with our sink
component as its plug-in: equal tables, clear errors, and nothing left behind by what fails, is damaged or is
interrupted. (Damage byte by byte: tests/unit/analysis/import/test_ctf_damage.c.)"""

import glob
import json
import os
import signal
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lttng_recording  # noqa: E402
import recording  # noqa: E402

PLUGIN = "babeltrace-plugin-varve.so"


class Import(lttng_recording.Case):
    def setUp(self):
        super().setUp()
        self.made = os.path.join(self.folder, "made.db")

    def trace(self, *options):
        """A trace of a program with threads, stacks and a child; the tests ask for nothing that takes long."""
        self.record_both("/bin/sh", "-c", f"{recording.program('churn')} --ops 3000 --threads 2; /bin/ls / > /dev/null",
                         options=["--stacks", "native", *options])
        return self.ctf

    def streams(self, trace):
        return sorted(path for folder, _, names in os.walk(trace)
                      for path in (os.path.join(folder, name) for name in names)
                      if "metadata" in os.listdir(folder) and not path.endswith("/metadata"))

    def assert_nothing_left(self, is_made=False):
        names = [name for name in os.listdir(self.folder) if name.startswith("made.db")]
        self.assertEqual(names, ["made.db"] if is_made else [])
        self.assertEqual(glob.glob(os.path.join(self.folder, "varve-ctf-*")), [])

    def refuse(self, *arguments, word):
        self.assert_refused(self.varve("import", *arguments, status=2), word)
        self.assert_nothing_left()

    def tables(self, path):
        self.open(path)
        names = [name for name, in self.sql("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
        self.assertIn("event_row", names)
        return {name: self.sql(f'SELECT * FROM "{name}"') for name in names}

    # ---- the command ----

    def test_summary(self):
        outcome = self.varve("import", self.trace(), "-o", self.made)
        self.open(self.made)
        self.assert_documented()
        self.assertIn(f"{self.one('SELECT count(*) FROM event'):,} events of ", outcome.out)
        self.assertIn("; nothing lost\n", outcome.out)
        self.assertEqual(outcome.err, "")
        self.assert_nothing_left(is_made=True)

    def start_held(self, trace):
        """An import, and the process that reads for it: one of that name which stops at once."""
        reader = os.path.join(self.folder, "babeltrace2")
        with open(reader, "w", encoding="ascii") as stream:
            stream.write("#!/bin/sh\nkill -STOP $$\n")
        os.chmod(reader, 0o755)
        process = recording.start([recording.VARVE, "import", trace, "-o", self.made], **self.identity,
                                  env={**self.environment, "PATH": f"{self.folder}:{os.environ['PATH']}"})
        held = recording.wait_until(lambda: [pid for pid in recording.children_of(process.pid)
                                             if recording.process_state(pid) == "T"],
                                    what="the process that reads")
        return process, held[0]

    def test_interrupted(self):
        trace = self.trace()
        for number in (signal.SIGINT, signal.SIGTERM):
            process, reader = self.start_held(trace)
            process.send_signal(number)
            outcome = recording.finish(process)
            self.assertEqual(outcome.returncode, -number, outcome)
            self.assert_nothing_left()
            self.assertIsNone(recording.process_state(reader))

    def test_killed_reader(self):
        process, reader = self.start_held(self.trace())
        os.kill(reader, signal.SIGKILL)
        self.assert_refused(recording.finish(process), "it was ended by signal 9")
        self.assert_nothing_left()

    def test_of_a_killed_program(self):
        """What LTTng delivered of it is read; what it did not is counted, if anything is missing."""
        process = self.start(self.record_command(recording.program("churn"), "--seconds", "3600", "--pace", "100",
                                                 options=["--lttng", "--stacks", "none"]))
        program = recording.wait_until(lambda: recording.program_of(process, "churn"), what="the program")
        recording.wait_until(self.sessions, what="the recording's session")
        figures = lambda: json.loads(self.varve("top", "--json", self.path).out)["figures"]["recording"]
        recording.wait_until(lambda: figures()["events"] > 1000, what="some events")
        os.kill(program, signal.SIGKILL)
        self.assertEqual(recording.finish(process).returncode, -signal.SIGKILL)
        self.varve("import", self.ctf, "-o", self.made)
        self.open()
        events = self.one("SELECT count(*) FROM event")
        self.open(self.made)
        missing = self.one("SELECT ifnull(sum(value), 0) FROM stats WHERE name = 'records_missing'")
        found = self.one("SELECT count(*) FROM event WHERE ring_seq IS NOT NULL")
        self.assertLessEqual(abs(found + missing - events), 4)  # one that a thread was about to commit
        self.assert_nothing_left(is_made=True)

    def test_log_on_request(self):
        trace = self.trace()
        outcome = self.varve("import", trace, "-o", self.made)
        self.assertEqual(outcome.err, "")
        self.environment["LIBBABELTRACE2_INIT_LOG_LEVEL"] = "INFO"
        outcome = self.varve("import", "--force", trace, "-o", self.made)
        self.assertIn("LIB/GRAPH", outcome.err)

    def test_another_tools_trace(self):
        output = os.path.join(self.folder, "other.ctf")
        for arguments in (("create", "other", f"--output={output}"), ("enable-event", "-u", "lttng_ust_statedump:*"),
                          ("start",)):
            outcome = self.lttng(*arguments)
            self.assertEqual(outcome.returncode, 0, outcome)
        environment = dict(self.environment, LTTNG_UST_REGISTER_TIMEOUT="-1", LD_PRELOAD="liblttng-ust.so.1")
        self.assertEqual(recording.run(["/bin/true"], env=environment, **self.identity).returncode, 0)
        self.lttng("destroy", "other")
        self.refuse(output, "-o", self.made, word="no varve events in it; it has ")
        self.refuse(output, "-o", self.made, word=" of lttng_ust_statedump")
        self.refuse(self.folder + "/missing", "-o", self.made, word="missing")
        self.refuse(self.home, "-o", self.made, word="no CTF trace in it")

    # ---- the plug-in ----

    def babeltrace(self, trace, parameters, path=None):
        folder = os.path.dirname(recording.VARVE)
        if not os.path.exists(os.path.join(folder, PLUGIN)):
            self.skipTest(f"{PLUGIN} is not built")
        return ["babeltrace2", f"--plugin-path={folder}", trace, "--component=sink.varve.sqlite",
                f"--params={parameters}" if parameters else f'--params=path="{path or self.made}"']

    def plug(self, *arguments, **more):
        return recording.finish(self.start(self.babeltrace(*arguments, **more)))

    def refuse_plug(self, *arguments, word, **more):
        outcome = self.plug(*arguments, **more)
        self.assertNotEqual(outcome.returncode, 0, outcome)
        self.assertIn(word, " ".join(outcome.err.split()))
        return outcome

    def test_plug_in_equals_import(self):
        trace = self.trace()
        outcome = self.plug(trace, None)
        self.assertEqual((outcome.returncode, outcome.out, outcome.err), (0, "", ""), outcome)
        self.assert_nothing_left(is_made=True)
        imported = self.rebuild()
        ours, theirs = self.tables(self.made), self.tables(imported)
        self.assertEqual(ours.keys(), theirs.keys())
        for name, rows in ours.items():
            self.assertEqual(rows, theirs[name], name)

    def test_plug_in_parameters(self):
        trace = self.trace()
        self.refuse_plug(trace, "force=true", word="the parameter `path` is missing")
        self.refuse_plug(trace, "path=7", word="the parameter `path` is missing")
        self.refuse_plug(trace, f'path="{self.made}",force=1', word="the parameter `force` is neither true nor false")
        self.assert_nothing_left()
        self.refuse_plug(trace, None, path=f"{self.folder}/nowhere/made.db", word="nowhere/made.db")
        with open(self.made, "w", encoding="utf-8") as stream:
            stream.write("mine")
        self.refuse_plug(trace, None, word="exists already")
        with open(self.made, encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "mine")
        if self.identity:
            os.chown(self.made, self.identity["user"], self.identity["group"])
        outcome = self.plug(trace, f'path="{self.made}",force=true')
        self.assertEqual(outcome.returncode, 0, outcome)
        self.open(self.made)
        self.assertGreater(self.one("SELECT count(*) FROM event"), 0)

    def test_plug_in_leaves_nothing(self):
        trace = self.trace()
        process = self.start(self.babeltrace(trace, None))
        recording.wait_until(lambda: process.poll() is not None or glob.glob(self.made + "*"),
                             what="the folder of the plug-in")
        process.send_signal(signal.SIGINT)
        outcome = recording.finish(process)
        self.assert_nothing_left(is_made=outcome.returncode == 0)
        if outcome.returncode == 0:
            os.remove(self.made)
        cut = max(self.streams(trace), key=os.path.getsize)
        os.truncate(cut, os.path.getsize(cut) - 100)
        shutil.rmtree(os.path.join(os.path.dirname(cut), "index"), ignore_errors=True)
        self.refuse_plug(trace, None, word="")
        self.assert_nothing_left()


if __name__ == "__main__":
    lttng_recording.main()
