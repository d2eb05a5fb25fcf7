#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s, full 900 s
# Runs threads: files are read ahead, databases written, and settings played by one each.
# Reads damaged input: snapshots.
"""Random histories of PyTorch's caching allocator, as its versions from 1.12 on write them (history_generator.py): some
begin late, have one entry or none, no stacks, no times, several devices, private pools, fields and actions that are
unknown. A snapshot and the database that it is imported into are one: the export of the import is the snapshot, and
every command says the same of both. What the report counts is what happened, and all decisions come out of a replay
where they follow from the snapshot."""

import json
import os
import pickle
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import recording  # noqa: E402
from history_generator import History  # noqa: E402

HISTORIES = 2000 if recording.IS_FULL else 60
PLAYED = 10 if recording.IS_FULL else 30  # one in so many is also played under other rules
ANSWERS = (["report", "--json"], ["segments", "--json"], ["replay", "--verify", "--json"])
PLAYS = (["compare", "--json", "--jobs", "1"], ["advise", "--json"], ["oom", "--json", "--all"],
         ["frontier", "--json", "--policy", "pytorch"])
TIMES = re.compile(r'"(seconds|events_per_second)":[^,}]*')


class Histories(recording.Case):
    def answer(self, command, path):
        """Status, output and messages, without the path and how long it took."""
        outcome = recording.varve(*command, path)
        return (outcome.returncode, TIMES.sub("", outcome.out.replace(str(path), "TRACE")),
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

    def check(self, seed):
        history = History(seed)
        source = self.write("history.pickle", pickle.dumps(history.snapshot, protocol=history.protocol))
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

    def test_histories(self):
        for seed in range(HISTORIES):
            with self.subTest(seed):
                self.check(seed)


if __name__ == "__main__":
    recording.main()
