#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 60 s
"""Both sinks say the same: what `varve import` makes of the LTTng trace equals the database that was recorded beside
it, event by event in all fields, for threads, forks, signal handlers, threads past their end, Python, and a replay of
an allocator (splits, merges, segments)."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import lttng_recording  # noqa: E402
import recording  # noqa: E402
import storage_model  # noqa: E402

RECORDINGS = os.path.join(recording.ROOT, "tests", "conformance", "pytorch")
# A folder of larger recordings, if there is one.
TRACES = os.environ.get("VARVE_TRACES")


class Equal(lttng_recording.Case):
    def test_threads(self):
        self.record_both(recording.program("churn"), "--ops", "20000" if recording.IS_FULL else "5000", "--threads",
                         "4", "--seed", "7", options=["--stacks", "native", "--ring-size", "256K"])
        self.assert_recording(may_know_unknown=True)
        self.assert_equal_sinks()
        ops = 230000 if recording.IS_FULL else 8000
        self.record_both(recording.program("churn"), "--ops", str(ops), "--threads", "4", "--seed", "8",
                         options=["--stacks", "none", "--force"])
        self.assertGreaterEqual(self.assert_equal_sinks(), 4 * ops)

    @lttng_recording.unittest.skipIf(recording.IS_SANITIZED, "a sanitized varve can't be recorded")
    def test_replays_of_allocators(self):
        names = ["gpt2_train.pickle.xz", "gpt2_train_expandable.pickle.xz", "multistream_record.pickle.xz",
                 "resnet50_train_stacks.pickle.xz"]
        traces = [os.path.join(RECORDINGS, name) for name in recording.sample(names, "gpt2_train_expandable",
                                                                              "multistream_record")]
        if TRACES:
            traces += [os.path.join(TRACES, "resnet50_train.pickle.xz")]
        kinds = set()
        for trace in traces:
            self.record_both(recording.VARVE, "replay", trace, options=["--stacks", "none", "--force"])
            self.assert_equal_sinks()
            kinds |= {kind for kind, in self.sql("SELECT DISTINCT kind FROM events")}
        self.assertLessEqual({"alloc", "free_requested", "free_completed", "split", "merge", "segment_alloc",
                              "segment_map", "record_stream", "config"}, kinds)

    def test_programs(self):
        """Forks and children, signal handlers, threads past their end, stacks of Python; and what must be there."""
        for command, options, wanted in (
                ((recording.program("forker"), "storm", "30"), ("--stacks", "native"),
                 "SELECT count(*) - 1 FROM process"),
                ((recording.program("signaler"), "50000" if recording.IS_FULL else "12000"), ("--ring-size", "4K"),
                 "SELECT count(*) FROM event"),
                ((recording.program("threadend"),), (), "SELECT count(*) FROM event"),
                (("/usr/bin/python3", "-c", "import json\nfor i in range(300): json.dumps(list(range(i)))"),
                 ("--stacks", "all"), "SELECT count(*) FROM frame WHERE is_python")):
            with self.subTest(os.path.basename(command[0])):
                self.record_both(*command, options=["--force", *options])
                self.assert_equal_sinks()
                self.assertGreater(self.one(wanted), 0)

    def test_storages(self):
        """The tables that follow from events of storages, too; of a program that exits, and of one that is killed."""
        query = ("SELECT s.*, y.function, y.file, y.line FROM storage s LEFT JOIN storages y USING(id) ORDER BY id",
                 "SELECT * FROM mark ORDER BY id", "SELECT storage_id, kind, score, evidence FROM storage_leak ORDER"
                                                   " BY 1")
        for mode, status in (("exit", 0), ("kill", -9)):
            self.record_both(recording.program("storage_hunt"), mode, options=["--stacks", "native", "--force"],
                             status=status)
            rebuilt = self.rebuild()
            if status == 0:
                self.assertTrue(self.diff(rebuilt)["equal"])
            self.open()
            self.assertEqual(storage_model.found(self.connection), storage_model.expected(self.connection))
            recorded = [self.sql(one) for one in query]
            self.assertGreater(len(recorded[0]), 300)
            self.open(rebuilt)
            self.assertEqual(storage_model.found(self.connection), storage_model.expected(self.connection))
            if status == 0:
                self.assertEqual([self.sql(one) for one in query], recorded)

    def test_rematerialization(self):
        queries = ["SELECT * FROM remat_total", "SELECT * FROM operator_total", "SELECT * FROM eviction_total",
                   "SELECT * FROM remat_storage ORDER BY id", "SELECT * FROM remat_blocked",
                   "SELECT * FROM remat_failure",
                   "SELECT seq, number, operator, score, cause FROM eviction ORDER BY seq",
                   "SELECT seq, number, depth, cost_ns, is_wasted FROM rematerialization ORDER BY seq"]
        self.record_both(recording.program("storage_remats"), "5000", options=["--stacks", "none"])
        self.assertGreater(self.assert_equal_sinks(), 10000)
        rebuilt = [self.sql(query) for query in queries]
        self.open()
        self.assertEqual(rebuilt, [self.sql(query) for query in queries])
        self.assertGreater(len(rebuilt[6]), 1000)

    def test_dropped_records_are_gaps_in_both(self):
        self.record(recording.program("churn"), "--ops", "20000",
                    options=["--lttng", "--overflow", "drop", "--ring-size", "4K", "--stacks", "none"])
        self.open()
        self.assertGreater(self.count("lost"), 0, "this machine keeps up with the smallest ring: nothing was tested")
        found = self.diff(self.rebuild())
        self.assertTrue(found["equal"], found)


if __name__ == "__main__":
    lttng_recording.main()
