#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""PyTorch on its own allocator, seen from outside: what the CUDA recorder and CUPTI report of the same run, against
PyTorch's own count and history of its calls of the driver; and the history itself as tables (--torch=observe)."""

import collections
import glob
import os
import pickle
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import FAILED, DUPLICATE, GpuCase, figure, recording  # noqa: E402

RUN = ("--model", "resnet50", "--steps", "3", "--warmup", "1")


class Recorders(GpuCase):
    def rows(self, kind, duplicate, columns="addr, size"):
        """Successful calls in the order of the trace, as one recorder reports them."""
        return self.sql(f"SELECT {columns} FROM events WHERE kind = ? AND flags & ? = 0 AND (flags & ? <> 0) = ? "
                        f"ORDER BY seq", kind, FAILED, DUPLICATE, duplicate)

    def torch_history(self, *actions):
        with open(self.file("history.pickle"), "rb") as stream:
            snapshot = pickle.load(stream)
        return [(entry["addr"], entry["size"]) for trace in snapshot["device_traces"] for entry in trace
                if entry["action"] in actions]

    def record_run(self, *options, **environment):
        answer, err = self.workload("answer.json", *RUN, "--history", self.file("history.pickle"),
                                    varve=[*options, "--stacks", "none"], **environment)
        self.assertEqual(answer["backend"], "native")
        self.assert_finished()
        self.assert_no_loss()
        return answer, err

    def compare_recorders(self, name):
        """CUPTI is loaded by cuInit, and the CUDA recorder before it: both see every call."""
        duplicates = self.one("SELECT count(*) FROM event WHERE flags & ? <> 0", DUPLICATE)
        self.assertGreater(duplicates, 0, "CUPTI reported nothing")
        for kind in ("dev_alloc", "dev_free", "vmm_create", "vmm_map", "vmm_unmap", "vmm_reserve"):
            preload, cupti = (collections.Counter(self.rows(kind, duplicate)) for duplicate in (0, 1))
            figure("recorders", run=name, kind=kind, preload=sum(preload.values()), cupti=sum(cupti.values()),
                   only_preload=sum((preload - cupti).values()), only_cupti=sum((cupti - preload).values()))
            self.assertEqual(preload, cupti, kind)

    def test_default(self):
        """Each segment that PyTorch got or gave back is one call with its address and size; the rest are other
        libraries'."""
        answer, _ = self.record_run("--cuda", "--cupti")
        for kind, action, count in (("dev_alloc", "segment_alloc", "num_device_alloc"),
                                    ("dev_free", "segment_free", "num_device_free")):
            reported, own = collections.Counter(self.rows(kind, 0)), collections.Counter(self.torch_history(action))
            self.assertEqual(sum(own.values()), answer[count])
            self.assertEqual(own - reported, collections.Counter(), f"{action} that no {kind} reports of")
            causes = self.sql("SELECT cause, count(*) FROM events WHERE kind = ? AND flags & ? = 0 GROUP BY 1", kind,
                              FAILED | DUPLICATE)
            figure("device_calls", kind=kind, torch=answer[count], recorded=sum(reported.values()),
                   others=[size for _, size in (reported - own).elements()], causes=causes)
        self.compare_recorders("default")

    def test_expandable(self):
        """A segment_map of PyTorch is a run of cuMemMap calls, one per handle, that follow each other in address and
        time."""
        answer, _ = self.record_run("--cuda", "--cupti", PYTORCH_ALLOC_CONF="expandable_segments:True")
        for kind, action, count in (("vmm_map", "segment_map", "num_device_alloc"),
                                    ("vmm_unmap", "segment_unmap", "num_device_free")):
            calls, own = self.rows(kind, 0), self.torch_history(action)
            self.assertEqual(len(own), answer[count], action)
            self.assertEqual(self.merged(calls, own), own)
            figure("expandable_calls", kind=kind, torch=answer[count], calls=len(calls),
                   bytes=sum(size for _, size in own))
        self.compare_recorders("expandable")

    def merged(self, calls, own):
        """The calls joined to runs, cut where PyTorch's history begins another one."""
        runs, wanted = [], iter(own)
        end, current = None, None
        for addr, size in calls:
            if current is None or addr != end or runs[-1][1] >= current[1]:
                current = next(wanted, (None, 0))
                runs.append((addr, 0))
            runs[-1] = (runs[-1][0], runs[-1][1] + size)
            end = addr + size
        return runs


class Observe(GpuCase):
    def test_history_becomes_tables(self):
        """Entries of each kind as in PyTorch's own snapshot, in DB.torch.PID.db, with the lines of the program. The
        snapshot is gone when `varve record` ends, so the program gives it a second name."""
        kept = self.file("kept")
        os.mkdir(kept)
        answer, err = self.workload("answer.json", *RUN, "--link", self.file("*.pickle"), kept,
                                    varve=["--torch=observe"])
        found = glob.glob(self.file("trace.torch.*.db"))
        self.assertEqual(found, [self.file(f"trace.torch.{answer['pid']}.db")], err)
        self.assertEqual(glob.glob(self.file("*.pickle*")), [])
        self.assertEqual(answer["backend"], "native")
        self.open(found[0])
        kinds = dict(self.sql("SELECT kind, count(*) FROM events GROUP BY 1"))
        with open(os.path.join(kept, f"trace.torch.{answer['pid']}.pickle"), "rb") as stream:
            traces = pickle.load(stream)["device_traces"]
        entries = collections.Counter(entry["action"] for trace in traces for entry in trace)
        figure("observe", entries=entries, imported=kinds)
        self.assertGreaterEqual(entries["alloc"], answer["allocation.all.allocated"])
        for action in ("alloc", "segment_alloc", "segment_map", "free_requested", "free_completed"):
            self.assertEqual(kinds.get(action, 0), entries[action], action)
        self.assertGreater(self.one("SELECT count(*) FROM frame WHERE file LIKE '%torch_workload.py'"), 0)


if __name__ == "__main__":
    recording.main()
