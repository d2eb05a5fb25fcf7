#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 7 s
"""Call sites in files of other profilers: speedscope's JSON, pprof's profile.proto, folded stacks. Each is read by
somebody else's reader, and what it adds up to is what the views say: in all, by line, by process."""

import collections
import gzip
import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from export_databases import Case, recording, unknown_fields  # noqa: E402

METRICS = {"live at the peak": "peak_bytes", "allocated": "bytes", "leaked": "live_bytes",
           "temporary (allocations)": "temporary", "allocations": "allocations"}
VALUES = {"alloc_objects": "allocations", "alloc_space": "bytes", "inuse_objects": "live_allocations",
          "inuse_space": "live_bytes", "peak_space": "peak_bytes"}
UNITS = ("none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes")


class Stacks(Case):
    def total(self, column, domain, process_id=0):
        view, where = ("callsite_total", "1") if process_id == 0 else ("callsite_total_process",
                                                                       f"process_id = {process_id}")
        return self.one(f"SELECT coalesce(sum({column}), 0) FROM {view} WHERE domain = ? AND {where}", domain)

    # ---- speedscope ----

    def speedscope(self, domain, *options, process_id=0):
        data, said = self.export("speedscope", "--domain", domain, *options)
        file = json.loads(data.decode())
        # What the schema asks for; https://www.speedscope.app/file-format-schema.json
        self.assertEqual(file["$schema"], "https://www.speedscope.app/file-format-schema.json")
        self.assertLessEqual(set(file), {"$schema", "shared", "profiles", "name", "activeProfileIndex", "exporter"})
        frames = file["shared"]["frames"]
        for frame in frames:
            self.assertLessEqual(set(frame), {"name", "file", "line", "col"})
            self.assertIsInstance(frame["name"], str)
            self.assertLessEqual(len(frame["name"]), 500)
            self.assertIsInstance(frame.get("line", 1), int)
        self.assertIn(file["activeProfileIndex"], range(len(file["profiles"])))
        names = []
        for profile in file["profiles"]:
            self.assertEqual(set(profile), {"type", "name", "unit", "startValue", "endValue", "samples", "weights"})
            self.assertEqual((profile["type"], profile["startValue"]), ("sampled", 0))
            self.assertIn(profile["unit"], UNITS)
            self.assertEqual(len(profile["samples"]), len(profile["weights"]))
            for stack in profile["samples"]:
                self.assertTrue(all(0 <= frame < len(frames) for frame in stack))
            named, name = profile["name"].split(", ", 1)
            names.append(name)
            self.assertEqual(named, domain)
            self.assertEqual(sum(profile["weights"]), profile["endValue"])
            self.assertEqual(profile["endValue"], self.total(METRICS[name], domain, process_id), name)
        self.assertEqual(sorted(names), sorted(METRICS))
        return file, said

    def lines_of(self, file, profile):
        """Bytes by innermost frame."""
        sums = collections.Counter()
        for stack, weight in zip(profile["samples"], profile["weights"]):
            frame = file["shared"]["frames"][stack[-1]]
            sums[frame["name"], frame.get("line")] += weight
        return sums

    def test_speedscope(self):
        self.heap()
        self.open()
        file, said = self.speedscope("heap")
        self.assertEqual(said, "")
        folded = self.export("folded", "--metric", "allocated")[0].decode()
        # The same tree, so the same number of stacks, and the same bytes by innermost frame.
        allocated = file["profiles"][1]
        self.assertEqual(len(folded.splitlines()), len(allocated["samples"]))
        by_line = collections.Counter()
        for line in folded.splitlines():
            stack, weight = line.rsplit(" ", 1)
            by_line[stack.rsplit(";", 1)[-1].split(" (")[0]] += int(weight)
        sums = collections.Counter()
        for (name, _), weight in self.lines_of(file, allocated).items():
            sums[name.split(" (")[0]] += weight
        self.assertEqual(sums, by_line)
        self.assertEqual(self.speedscope("heap", "--metric", "leaked")[0]["activeProfileIndex"], 2)
        self.speedscope("mmap")

    def test_python_frames(self):
        self.python()
        self.open()
        file, _ = self.speedscope("heap")
        dumps = [frame for frame in file["shared"]["frames"] if frame["name"] == "dumps"
                 and frame["file"].endswith("json/__init__.py")]
        self.assertTrue(dumps and all(frame["line"] > 0 for frame in dumps))

    def test_process(self):
        self.heap()
        self.open()
        (pid, process_id), = self.sql("SELECT pid, process_id FROM total_process WHERE domain = 'heap' ORDER BY"
                                      " peak_bytes DESC LIMIT 1")
        self.speedscope("heap", "--pid", str(pid), process_id=process_id)

    # ---- folded ----

    def test_folded_is_that_of_flamegraph(self):
        self.heap()
        for metric in ("peak", "allocated", "leaked", "temporary"):
            ours, _ = self.export("folded", "--metric", metric)
            theirs = self.varve("flamegraph", "--folded", "--min-share", "0", "--metric", metric, self.path).out
            self.assertEqual(ours.decode(), theirs)
        self.assertEqual(self.varve("export", self.path, "--to", "folded", "-o", "-", "--metric", "temporary").out,
                         theirs)

    # ---- pprof ----

    def pprof(self, domain, *options, process_id=0):
        module = self.protobuf("profile")
        data, said = self.export("pprof", "--domain", domain, *options)
        profile = module.Profile()
        profile.ParseFromString(gzip.decompress(data))
        self.assertEqual(unknown_fields(profile), 0)
        texts = profile.string_table
        self.assertEqual(texts[0], "")
        self.assertEqual(len(texts), len(set(texts)))
        types = [texts[one.type] for one in profile.sample_type]
        self.assertEqual(types, list(VALUES))
        self.assertEqual([texts[one.unit] for one in profile.sample_type],
                         ["count", "bytes", "count", "bytes", "bytes"])
        self.assertEqual(texts[profile.default_sample_type], "inuse_space")
        self.assertEqual((texts[profile.period_type.type], texts[profile.period_type.unit], profile.period),
                         ("space", "bytes", 1))
        # As pprof's own CheckValid has it: ids are unique and not 0, and what is referred to is there.
        tables = {}
        for name in ("mapping", "location", "function"):
            items = getattr(profile, name)
            tables[name] = {item.id: item for item in items}
            self.assertEqual(len(tables[name]), len(items))
            self.assertNotIn(0, tables[name])
        ends = 0
        for mapping in profile.mapping:  # no address belongs to two of them
            self.assertLessEqual(ends, mapping.memory_start)
            self.assertLess(mapping.memory_start, mapping.memory_limit)
            ends = mapping.memory_limit
        for location in profile.location:
            self.assertTrue(all(line.function_id in tables["function"] for line in location.line))
            if location.mapping_id:
                mapping = tables["mapping"][location.mapping_id]
                self.assertTrue(mapping.memory_start <= location.address < mapping.memory_limit)
            else:
                self.assertTrue(location.line)
        for sample in profile.sample:
            self.assertEqual(len(sample.value), len(types))
            self.assertTrue(sample.location_id and all(one in tables["location"] for one in sample.location_id))
            self.assertEqual({texts[label.key]: texts[label.str] or label.num for label in sample.label}["domain"],
                             domain)
        for i, name in enumerate(types):
            self.assertEqual(sum(sample.value[i] for sample in profile.sample),
                             self.total(VALUES[name], domain, process_id), name)
        return profile, tables, said

    def leaves(self, profile, tables):
        """Allocated bytes by the innermost frame: function and line, or nothing where only the module is known."""
        sums = collections.Counter()
        for sample in profile.sample:
            lines = tables["location"][sample.location_id[0]].line
            texts = profile.string_table
            function = tables["function"][lines[0].function_id] if lines else None
            key = (texts[function.name], texts[function.filename], lines[0].line) if lines else ("", "", 0)
            sums[key] += sample.value[1]
        return sums

    def expected_leaves(self, domain):
        """The same from the views: frame 0 of each call site."""
        return {row[:3]: row[3] for row in self.sql(
            "SELECT iif(f.function IS NULL, '', f.function), iif(f.function IS NULL, '', coalesce(f.file, '')),"
            " iif(f.function IS NULL, 0, coalesce(f.line, 0)), sum(t.bytes) FROM callsite_total t"
            " JOIN frame f ON f.callsite_id = t.callsite_id AND f.depth = 0 WHERE t.domain = ? GROUP BY 1, 2, 3",
            domain)}

    def test_pprof(self):
        self.heap()
        self.open()
        profile, tables, said = self.pprof("heap")
        self.assertEqual(said, "")
        self.assertEqual(dict(self.leaves(profile, tables)), self.expected_leaves("heap"))
        by_pid = collections.Counter()
        for sample in profile.sample:
            pid = next(label.num for label in sample.label if profile.string_table[label.key] == "pid")
            by_pid[pid] += sample.value[1]
        self.assertEqual(dict(by_pid), dict(self.sql("SELECT pid, sum(bytes) FROM total_process WHERE domain = 'heap'"
                                                     " GROUP BY pid")))
        # Build ids are those of the table of modules, and the program is the first.
        builds = {profile.string_table[one.filename]: profile.string_table[one.build_id] for one in profile.mapping}
        expected = dict(self.sql("SELECT path, coalesce(build_id, '') FROM module"))
        self.assertTrue(builds and all(expected.get(path) == build for path, build in builds.items()))
        self.assertEqual(profile.string_table[profile.mapping[0].filename], recording.program("forker"))
        (begin, duration), = self.sql("SELECT (SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'start_real_ns'),"
                                      " duration_ns FROM recording")
        self.assertEqual((profile.time_nanos, profile.duration_nanos), (begin, duration))

    def test_pprof_stacks_are_frames(self):
        """Every stack, inlined functions and all, as view frame has it."""
        self.python()
        self.open()
        profile, tables, _ = self.pprof("heap")
        stacks = collections.Counter()
        for sample in profile.sample:
            lines = [line for one in sample.location_id for line in tables["location"][one].line]
            names = (profile.string_table[tables["function"][line.function_id].name] for line in lines)
            stacks[tuple(zip(names, (line.line for line in lines)))] += sample.value[0]
        expected = collections.Counter()
        frames = collections.defaultdict(list)
        for callsite, function, line in self.sql("SELECT callsite_id, function, coalesce(line, 0) FROM frame WHERE"
                                                 " function IS NOT NULL ORDER BY callsite_id, depth"):
            frames[callsite].append((function, line))
        for callsite, allocations in self.sql("SELECT callsite_id, allocations FROM callsite_total WHERE domain ="
                                              " 'heap'"):
            expected[tuple(frames[callsite])] += allocations
        self.assertEqual(stacks, expected)
        self.assertTrue(any(len(location.line) > 1 for location in profile.location), "nothing was inlined")

    def test_random_recordings(self):
        """Threads that allocate at random: totals of every format and every domain are those of the views."""
        for seed in range(1, 4):
            self.record(recording.program("churn"), "--ops", "3000", "--seed", str(seed), "--threads", str(seed),
                        "--leak", options=["--heap", "--quiet", "--force"])
            self.open()
            for domain in ("heap", "mmap"):
                self.speedscope(domain)
                self.pprof(domain)
                for metric, column in (("peak", "peak_bytes"), ("allocated", "bytes"), ("leaked", "live_bytes"),
                                       ("temporary", "temporary")):
                    lines = self.export("folded", "--domain", domain, "--metric", metric)[0].decode().splitlines()
                    self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in lines), self.total(column, domain))

    # ---- what a database may lack, or hold ----

    def test_hostile_names(self):
        self.hostile()
        self.open()
        self.speedscope("heap")
        self.pprof("heap")
        data, _ = self.export("folded", "--metric", "allocated")
        lines = data.decode().splitlines()
        self.assertEqual(sum(int(line.rsplit(" ", 1)[1]) for line in lines), self.total("bytes", "heap"))
        self.assertFalse(any(character < " " for line in lines for character in line))
        self.assertLess(len(data), 1 << 24)

    def test_less_is_kept(self):
        self.bare("totals")
        self.open()
        self.speedscope("heap")
        self.pprof("heap")

    def test_without_stacks(self):
        self.bare("events", "--stacks", "none")
        self.open()
        _, said = self.speedscope("heap")
        self.assertIn("no call site of domain heap has a stack", said)
        _, _, said = self.pprof("heap")
        self.assertIn("no call site of domain heap has a stack", said)
        _, said = self.speedscope("device")
        self.assertIn("nothing of domain device", said)


if __name__ == "__main__":
    recording.main()
