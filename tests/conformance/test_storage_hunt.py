#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""A hunt for leaks: a program plants twelve of them, each of another kind, beside twelve things that look alike and
are none. All are found and nothing else is accused, by the tracker in the program, and by `varve leaks` from the
trace, whether the program exits or is killed; and the table of storages is what the events say. Which storages are
planted is in the program's own output."""

import csv
import io
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
import storage_model  # noqa: E402

# In use, as far as anybody can know, before the end: a reference that is never given back, and a view of all of a
# storage.
KNOWN_AT_THE_END_ONLY = {"planted_one_reference_too_many", "planted_view_of_all_of_it"}
GROWING = {"planted_one_a_phase", "planted_many_in_a_loop"}
KILLED = 128 + 9


class Hunt(recording.Case):
    def hunt(self, mode, options=(), status=None):
        """Record the program in a mode. What it made by function, and what the tracker found then: {when: {function:
        kind}}."""
        outcome = self.record(recording.program("storage_hunt"), mode, options=options,
                              status=-9 if status is None and mode != "exit" and mode != "silent" else 0)
        self.read(outcome.out)
        self.assert_finished()

    def read(self, out):
        lines = recording.json_lines(out)
        self.function_of = {line["id"]: line["made"] for line in lines if "made" in line}
        self.planted = {name for name in self.function_of.values() if name.startswith("planted_")}
        self.innocent = {name for name in self.function_of.values() if name.startswith("innocent_")}
        self.assertEqual((len(self.planted), len(self.innocent)), (12, 12))
        self.told = {when: {(self.function_of[line["id"]], line["kind"]) for line in lines if line.get("found") == when}
                     for when in ("middle", "end")}
        self.counts = {(line["found"], self.function_of[line["id"]]): line["storages"] for line in lines
                       if line.get("kind") == "growth"}

    def told_functions(self, when):
        return {function for function, _ in self.told[when]}

    def numbers_of(self, functions):
        return {number for number, function in self.function_of.items() if function in functions}

    def assert_accused(self, functions):
        """These, and all that they made; by number, and by the call sites that the command lists."""
        self.assertEqual({number for number, in self.sql("SELECT number FROM storage_leak")},
                         self.numbers_of(functions))
        answer = json.loads(self.varve("leaks", "--domain", "storage", "--json", "--top", "1000", self.path).out)
        listed = {}
        for entry in answer["callsites"]:
            names = [frame["function"] for frame in entry["frames"]]
            (function,) = [name for name in names if name in self.planted | self.innocent]
            listed[function] = listed.get(function, 0) + entry["storages"]
            self.assertEqual(entry["function"], function)
            self.assertTrue(0 < entry["score"] <= 1, entry)
            self.assertGreater(len(entry["evidence"].split()), 4, entry)
        self.assertEqual(listed, {function: len(self.numbers_of({function})) for function in functions})
        self.assertEqual(answer["storages"], len(self.numbers_of(functions)))
        self.assertEqual([(answer["kept"]["storages"], answer["kept"]["bytes"])],
                         self.sql("SELECT count(*), coalesce(sum(size), 0) FROM storage_kept"))
        leaks = self.varve("leaks", "--domain", "storage", "--csv", "--top", "1000", self.path).out
        rows = list(csv.DictReader(io.StringIO(leaks)))
        self.assertEqual([(row["kind"], int(row["bytes"]), row["evidence"]) for row in rows],
                         [(entry["kind"], entry["bytes"], entry["evidence"]) for entry in answer["callsites"]])
        text = self.varve("leaks", "--domain", "storage", "--top", "1000", self.path).out
        for function in self.planted | self.innocent:
            self.assertEqual(function[:26] in text, function in functions, text)  # long names are cut

    def kinds(self):
        """As the trace has them, by function."""
        return {(self.function_of[number], kind) for number, kind in self.sql("SELECT number, kind FROM storage_leak")}

    def assert_model(self):
        self.assertEqual(storage_model.found(self.connection), storage_model.expected(self.connection))

    def test_exit(self):
        self.hunt("exit")
        self.assertEqual(self.told_functions("middle"), self.planted - KNOWN_AT_THE_END_ONLY)
        self.assertEqual(self.told_functions("end"), self.planted)
        self.assert_accused(self.planted)
        self.assertLessEqual(self.told["middle"], self.kinds())
        self.assertEqual({kind for _, kind in self.kinds()},
                         {"cycle", "held by views", "growth", "untouched", "alive at the end"})
        self.assert_model()

    def test_killed_at_the_end(self):
        self.hunt("kill")
        self.assertEqual(self.told_functions("end"), self.planted)
        self.assert_accused(self.planted)
        self.assertEqual(self.one("SELECT count(*) FROM storage WHERE destroy_seq IS NULL AND kind <> 2"),
                         len(self.numbers_of(self.planted)))
        self.assert_model()

    def test_killed_amid_innocents(self):
        self.hunt("middle")
        self.assertEqual(self.told_functions("middle"), self.planted - KNOWN_AT_THE_END_ONLY)
        self.assert_accused(self.planted - KNOWN_AT_THE_END_ONLY)
        self.assertEqual(self.kinds(), self.told["middle"])
        kept = {self.function_of[number] for number, in self.sql("SELECT number FROM storage_kept")}
        self.assertEqual(kept - self.innocent, KNOWN_AT_THE_END_ONLY)
        self.assertGreaterEqual(len(kept & self.innocent), 8)  # that many are alive then, and look leaked
        self.assert_model()

    def test_the_trace_alone(self):
        self.hunt("silent")
        self.assertEqual(self.count("leak"), 0)
        self.assert_accused(self.planted)
        self.assert_model()

    def test_the_trace_alone_of_a_killed_program(self):
        self.hunt("silent-kill")
        self.assert_accused(GROWING)
        self.assert_model()

    def test_the_tracker_alone(self):
        outcome = recording.run([recording.program("storage_hunt"), "exit"])
        self.assertEqual(outcome.returncode, 0, outcome)
        self.read(outcome.out)
        self.assertEqual(self.told_functions("middle"), self.planted - KNOWN_AT_THE_END_ONLY)
        self.assertEqual(self.told_functions("end"), self.planted)
        self.assertEqual({function for when, function in self.counts if when == "middle"}, GROWING)
        for (_, function), count in self.counts.items():
            self.assertEqual(count, len(self.numbers_of({function})))

    def test_recovered(self):
        """The collector is killed in the middle: another one makes the same of what is left."""
        process = recording.start(self.record_command(recording.program("storage_hunt"), "stop"))
        self.addCleanup(lambda: process.poll() is None and os.killpg(process.pid, signal.SIGKILL))
        program = recording.wait_until(lambda: recording.program_of(process, "storage_hunt"),
                                       what="the program's start")
        recording.wait_until(lambda: recording.process_state(program) == "T", what="the middle of the program")
        process.kill()
        os.kill(program, signal.SIGCONT)
        self.read(recording.finish_orphan(process))
        self.varve("recover", self.path + ".d")
        self.assert_finished()
        self.assertEqual(self.told_functions("end"), self.planted)
        self.assert_accused(self.planted)
        self.assert_model()

    def test_growth_by_phase(self):
        self.hunt("exit")
        self.assertEqual(self.sql("SELECT name, count(*), sum(end_seq IS NULL) FROM mark GROUP BY name ORDER BY name"),
                         [("step", 10, 0), ("work", 1, 0)])
        rows = self.sql("SELECT g.name, c.function, count(*), sum(g.storages), sum(g.left_over) FROM storage_growth g"
                        " JOIN (SELECT DISTINCT callsite_id, function FROM storages) c ON c.callsite_id = g.callsite_id"
                        " GROUP BY 1, 2")
        growth = {(name, function): tuple(rest) for name, function, *rest in rows}
        self.assertEqual({key: value for key, value in growth.items() if key[0] == "step"},
                         {("step", "planted_one_a_phase"): (10, 10, 10)})
        self.assertEqual(growth["work", "planted_many_in_a_loop"], (1, 10, 10))
        self.assertEqual(growth["work", "innocent_used_in_place"], (1, 1, 0))

    def test_from_a_tensor_to_its_segment_and_back(self):
        self.hunt("kill")
        query = ("SELECT s.number, a.addr, g.id, g.addr <= s.addr AND s.addr + s.size <= g.addr + g.size,"
                 " a.addr <= s.addr AND s.addr + s.size <= a.addr + a.size"
                 " FROM storage s JOIN allocation a ON a.id = s.allocation_id JOIN segment g ON g.id = a.segment_id")
        rows = self.sql(query)
        self.assertEqual({row[0] for row in rows}, {number for number, in self.sql("SELECT number FROM storage")})
        self.assertEqual({row[3:] for row in rows}, {(1, 1)})
        for segment, in self.sql("SELECT DISTINCT segment_id FROM storages"):
            back = self.sql(query + " WHERE g.id = ?", segment)
            self.assertEqual([row for row in rows if row[2] == segment], sorted(back, key=rows.index))
        number, _, segment = rows[0][:3]
        self.assertEqual(self.sql(query + " WHERE s.number = ?", number), rows[:1])
        self.assertEqual(self.one("SELECT segment_id FROM storages WHERE number = ?", number), segment)

    def test_what_is_kept(self):
        """Storages are kept as allocations are."""
        self.hunt("middle")
        accused = self.sql("SELECT count(*), sum(size) FROM storage_leak")
        everything = self.one("SELECT count(*) FROM storage")
        alive = self.one("SELECT count(*) FROM storage WHERE destroy_seq IS NULL")
        for keep, rows in (("allocations", everything), ("totals", alive)):
            self.hunt("middle", options=["--force", "--keep", keep])
            self.assertEqual(self.one("SELECT count(*) FROM event"), 0)
            self.assertEqual(self.one("SELECT count(*) FROM storage"), rows)
            self.assertEqual(self.sql("SELECT count(*), sum(size) FROM storage_leak"), accused)
            self.assert_accused(self.planted - KNOWN_AT_THE_END_ONLY)

    def test_python(self):
        """The call site is the program's line, not one of the package that it goes through."""
        script = os.path.join(self.folder, "planted.py")
        with open(script, "w", encoding="utf-8") as stream:
            stream.write("import os\nimport varve\n\n\ndef planted():\n    return varve.zeros((4, 64))\n\n\n"
                         "kept = [planted() for _ in range(3)]\nos._exit(0)\n")
        self.record("/usr/bin/python3", script, env=dict(os.environ,
                                                         PYTHONPATH=os.path.join(recording.ROOT, "notebooks"),
                                                         VARVE_BUILD_DIR=os.path.dirname(recording.VARVE)))
        self.assert_finished()
        self.assertEqual(self.sql("SELECT function, file, line, kind, storages, bytes FROM storage_leak_callsite"),
                         [("planted", script, 6, "alive at the end", 3, 3 * 4 * 64 * 4)])

    def test_report_and_info(self):
        self.hunt("exit")
        totals = self.sql("SELECT kind, dtype, count(*), sum(size) FROM storages GROUP BY kind, dtype ORDER BY kind,"
                          " dtype")
        for command in ("report", "info"):
            text = self.varve(command, self.path).out
            self.assertIn("\nStorages\n", text)
            answer = json.loads(self.varve(command, "--json", self.path).out)["storages"]
            rows = answer["totals"] if command == "report" else answer
            self.assertEqual(sorted((row["kind"], row["dtype"], row["storages"], row["bytes"]) for row in rows), totals)
        self.record("/bin/true", options=["--force"])
        self.assertNotIn("Storages", self.varve("report", self.path).out + self.varve("info", self.path).out)
        self.assertIn("no storage was created", self.varve("leaks", "--domain", "storage", self.path).out)


if __name__ == "__main__":
    recording.main()
