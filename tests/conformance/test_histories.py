#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s, full 900 s
# Runs threads: files are read ahead, databases written, and settings played by one each.
# Reads damaged input: snapshots.
"""Random histories of PyTorch's caching allocator, as its versions from 1.12 on write them (history_generator.py): some
begin late, have one entry or none, no stacks, no times, several devices, private pools, settings that change decisions,
fields and actions that are unknown. A snapshot and the database that it is imported into are one: the export of the
import is the snapshot, and every command says the same of both. What the report counts is what happened, of a profile
of the same run, too, and all decisions come out of a replay where they follow from the snapshot. Policies begin alike
with what a late history begins with."""

import itertools
import json
import os
import pickle
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import recording  # noqa: E402
from history_generator import History  # noqa: E402

HISTORIES = (2000 if recording.IS_FULL else 40) // (5 if recording.IS_SANITIZED else 1)
PLAYED = 10 if recording.IS_FULL else 30  # one in so many is also played under other rules
ANSWERS = (["report", "--json"], ["segments", "--json"], ["replay", "--verify", "--json"])
PLAYS = (["compare", "--json", "--jobs", "1"], ["advise", "--json"], ["oom", "--json", "--all"],
         ["frontier", "--json", "--policy", "pytorch"])
TIMES = re.compile(r'"(seconds|events_per_second)":[^,}]*')


class Histories(recording.Case):
    def answer(self, command, path):
        """Status, output and messages, without the path and how long it took."""
        outcome = recording.varve(*command, path)
        return (outcome.returncode, TIMES.sub(r'"\1":0', outcome.out.replace(str(path), "TRACE")),
                outcome.err.replace(str(path), "TRACE"))

    def check_truth(self, history, report):
        totals = {row["device"]: row for row in report["totals"] if row["domain"] == "block"}
        for number in range(len(history.devices)):
            truth = history.truth(number)
            row = totals.get(number, dict.fromkeys(truth, 0))
            self.assertEqual({key: row[key] for key in truth}, truth, f"device {number}")

    def check_words(self, history, said):
        """What could not be read is counted."""
        for count, words in ((history.unknown_entries, "cannot read"), (history.unknown_fields, "does not know")):
            found = re.search(r"(\d+) (?:entry|entries|field|fields)[^;]*" + words, said)
            self.assertEqual(int(found[1]) if found else 0, count, said)

    def check_limits(self, history, limits):
        """Those that are found are no larger than those that were."""
        for found in limits:
            device = history.devices[found["device"]]
            self.assertLessEqual(found["least_bytes"], device.room(), found)
            self.assertTrue(found["least_bytes"] <= found["used_bytes"] <= found["most_bytes"], found)

    def check(self, seed):
        history = History(seed)
        source = self.write("history.pickle", history.pickled())
        exported = os.path.join(self.folder, "exported.pickle")
        self.varve("import", "--force", "-o", self.path, source)
        self.varve("export", "--to", "pytorch", "--force", "-o", exported, self.path)
        with open(exported, "rb") as file:
            self.assertEqual(pickle.load(file), history.snapshot)
        for command in ANSWERS + (PLAYS if seed % PLAYED == 0 else ()):
            status, out, err = self.answer(command, source)
            self.assertEqual((status, out, err), self.answer(command, self.path), command)
            if command[0] == "report":
                self.assertEqual(status, 0, err)
                self.check_truth(history, json.loads(out))
                self.check_words(history, err)
            elif command[0] == "replay" and history.is_decided():
                self.assertEqual(status, 0, err)
                self.check_limits(history, json.loads(out)["memory_limits"])

    def test_several_devices(self):
        """A frontier is of each device: its load is that of the one that needs most, and the sum is called that."""
        history = next(history for history in map(History, itertools.count()) if len(history.devices) > 1
                       and not history.is_limited and min(map(len, history.traces)) > 50)
        source = self.write("history.pickle", history.pickled())
        loads = [history.truth(number)["peak_bytes"] for number in range(len(history.devices))]
        row = json.loads(self.varve("frontier", "--json", "--policies", "pytorch", source).out)
        self.assertEqual((row["load_bytes"], row["load_bytes_sum"], row["devices"]),
                         (max(loads), sum(loads), len(loads)))
        self.assertGreaterEqual(row["frontier_bytes"], row["load_bytes"])
        row = json.loads(self.varve("compare", "--json", "--policies", "pytorch", source).out)
        self.assertEqual((row["load_bytes"], row["devices"]), (sum(loads), len(loads)))

    def test_policies_begin_alike(self):
        """What a history that begins late begins with is the same under every policy, or it is said; it costs none of
        them anything, which shows where nothing comes behind it."""
        late = (history for history in map(History, itertools.count()) if history.kept in ("late", "none")
                and any(device.segments for device in history.devices))
        for history in itertools.islice(late, HISTORIES // 6):
            with self.subTest(history.seed):
                source = self.write("history.pickle", history.pickled())
                rows = json.loads(self.varve("compare", "--json", "--jobs", "1", source).out)
                starts = [row["start"] for row in rows]
                if starts[0] is None:
                    self.assertEqual(starts, [None] * len(rows))
                    continue
                inherited = {(start["reserved"], start["allocated"]) for start in starts if start["inherited"]}
                self.assertEqual(inherited, {(starts[0]["reserved"], starts[0]["allocated"])})
                # under cuda-async what waits for other streams is the driver's at once
                self.assertEqual(len({start["requested"] for row, start in zip(rows, starts)
                                      if row["policy"] != "cuda-async"}), 1)
                is_said = "not all begin with its segments" in self.varve("compare", "--jobs", "1", source).out
                self.assertEqual(is_said, not all(start["inherited"] for start in starts))
                if not any(history.traces):
                    self.assertEqual({(row["device_calls"], row["device_ns"]) for row in rows}, {(0, 0)})

    def test_profiles(self):
        """What a profiler of the same run says, from any moment on: its totals are what the report counts."""
        for seed in range(HISTORIES // 4):
            history = History(seed)
            skipped = history.rng.choice((0, history.rng.randint(0, 40)))
            profiles = [device.profile[skipped:] for device in history.devices]
            if not any(profiles):
                continue
            with self.subTest(seed, skipped=skipped):
                source = self.write("profile.json", json.dumps(history.profiler_trace(skipped)).encode())
                self.varve("import", "--force", "-o", self.path, source)
                rows = json.loads(self.varve("report", "--json", self.path).out)["totals"]
                rows = {row["device"]: row for row in rows if row["domain"] == "block"}
                for number, profile in enumerate(profiles):
                    if profile:
                        change, addr, allocated, _ = profile[0]
                        totals = [allocated - (change if addr is not None else 0), *(report[2] for report in profile)]
                        wanted = {"peak_bytes": max(totals), "live_bytes": totals[-1],
                                  "failed": sum(report[1] is None for report in profile)}
                        row = rows.get(number, dict.fromkeys(wanted, 0))
                        self.assertEqual({key: row[key] for key in wanted}, wanted, number)

    def test_limit_of_several_devices(self):
        """The limit of two devices that did the same is that of one, and explains the same."""
        history = next(history for history in map(History, itertools.count()) if len(history.devices) == 1
                       and history.is_limited and not history.is_full and history.is_decided()
                       and history.kept == "all" and history.says("allocator_settings") and not history.odd
                       and "oom" in {event[0] for event in history.traces[0]})
        one = history.snapshot
        two = dict(one, device_traces=one["device_traces"] * 2,
                   segments=one["segments"] + [dict(segment, device=1) for segment in one["segments"]])
        answers = []
        for snapshot in (one, two):
            snapshot = json.loads(json.dumps(snapshot))  # nothing is shared
            source = self.write("history.pickle", pickle.dumps(snapshot, protocol=4))
            answers.append(json.loads(self.varve("oom", "--json", source).out))
        self.assertEqual(*(answer["memory_limit"] for answer in answers))
        self.assertEqual(*(answer["ooms"][0]["served"]["fails_again"] for answer in answers))
        self.assertEqual(len(answers[1]["ooms"]), 2 * len(answers[0]["ooms"]))

    def test_histories(self):
        for seed in range(HISTORIES):
            with self.subTest(seed):
                self.check(seed)


if __name__ == "__main__":
    recording.main()
