#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""Two processes on two GPUs, started by torchrun under one `varve record`: ranks and devices stay apart in the
tables."""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_support import HERE, PYTHON, GpuCase, figure, recording  # noqa: E402


class Ranks(GpuCase):
    GPUS = 2

    def record_ranks(self, *options):
        # NVLink multicast stays off: a program that uses it can put GPUs that others share out of service.
        environment = {**self.environment, "NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
                       "NVSHMEM_DISABLE_NVLS": "1", "OMP_NUM_THREADS": "1"}
        self.record(PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
                    os.path.join(HERE, "torch_ddp.py"), self.folder, options=["-q", *options], env=environment,
                    cwd=self.folder)
        self.assert_finished()
        self.assert_no_loss()
        ranks = []
        for rank in (0, 1):
            with open(self.file(f"{rank}.json"), encoding="utf-8") as stream:
                ranks.append(json.load(stream))
        return ranks

    def process(self, rank):
        """The row of the process that trained: torchrun's own has no rank."""
        rows = self.sql("SELECT id, rank FROM process WHERE pid = ?", rank["pid"])
        self.assertTrue(rows)
        self.assertEqual({row[1] for row in rows}, {rank["rank"]})
        return rows[-1][0]

    def test_own_allocator(self):
        for rank in self.record_ranks("--torch", "--stacks", "python"):
            process = self.process(rank)
            devices = self.sql("SELECT device, count(*) FROM allocations WHERE domain = 'block' AND process_id = ? "
                               "GROUP BY 1", process)
            figure("rank", mode="torch", process=process, devices=devices, **rank)
            self.assertEqual(rank["backend"], "native")
            self.assertEqual([device for device, _ in devices], [rank["device"]])
            self.assertGreaterEqual(devices[0][1], rank["allocations"])
            peak = self.one("SELECT max(reserved) FROM timeline_process WHERE domain = 'block' AND process_id = ? "
                            "AND device = ?", process, rank["device"])
            self.assertEqual(peak, rank["reserved"])
            self.assertEqual(self.sql("SELECT process_id, device, reserved_bytes FROM rank_total WHERE rank = ? AND "
                                      "domain = 'block'", rank["rank"]), [(process, rank["device"], rank["reserved"])])

    def test_native(self):
        ranks = self.record_ranks("--cuda", "--stacks", "none")
        for rank in ranks:
            process = self.process(rank)
            devices = self.sql("SELECT device, count(*), sum(size) FROM allocations WHERE domain = 'device' AND "
                               "process_id = ?"
                               " GROUP BY 1", process)
            figure("rank", mode="cuda", process=process, devices=devices, **rank)
            self.assertIn(rank["device"], [device for device, _, _ in devices])
            self.assertGreaterEqual(sum(count for device, count, _ in devices if device == rank["device"]),
                                    rank["num_device_alloc"])
            self.assertEqual([device for device, _, size in devices if device != rank["device"] and size > 64 << 20],
                             [],
                             "no memory to speak of on the other rank's device")


if __name__ == "__main__":
    recording.main()
