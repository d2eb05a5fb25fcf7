#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s, full 30 s
"""What a program does with storages, as its trace shows it: the examples of storage/ under `varve record`."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STORAGE_KINDS = "('storage_create', 'storage_destroy', 'view', 'copy', 'cast', 'transfer', 'share', 'map')"


def example(name):
    return os.path.join(os.path.dirname(recording.VARVE), "examples", "example_" + name)


class Storages(recording.Case):
    def events(self, where="1"):
        return self.sql(f"SELECT kind, id, addr, size, requested, arg FROM events WHERE kind IN {STORAGE_KINDS} AND"
                        f" {where} ORDER BY seq")

    def assert_all_gone(self):
        """Every storage and view went, once, and after it came."""
        for created, destroyed in self.sql(
                "SELECT sum(kind IN ('storage_create', 'view')), sum(kind = 'storage_destroy') FROM events "
                f"WHERE kind IN {STORAGE_KINDS} GROUP BY pid, id"):
            self.assertEqual((created, destroyed), (1, 1))

    def test_a_pool(self):
        self.record(example("pool_tensor"))
        self.assert_finished()
        self.assert_conserved()
        events = self.events()
        self.assertEqual([row[0] for row in events],
                         ["storage_create", "view", "storage_create", "cast",
                          "storage_destroy", "storage_destroy", "storage_destroy"])
        tensor, view, half, cast, *destroyed = events
        self.assertEqual((tensor[3:5], tensor[5] % 256), ((1024000, 256000), 1))
        self.assertEqual((view[2], view[3], view[5]), (tensor[2] + 28, 4000, tensor[1]))
        self.assertEqual((cast[1], cast[4], cast[5]), (half[1], view[1], view[2]))
        self.assertEqual([row[1] for row in destroyed], [view[1], tensor[1], half[1]])
        for storage, block_id in ((tensor, 1), (half, 2)):  # from the storage to the block that it lies in
            self.assertEqual(storage[5] // 256, block_id)
            self.assertEqual(self.sql("SELECT requested FROM events WHERE kind = 'alloc' AND addr = ?", storage[2]),
                             [(storage[3],)])
        self.assert_all_gone()
        functions = self.sql("SELECT DISTINCT function FROM frame WHERE callsite_id IN "
                             f"(SELECT callsite_id FROM events WHERE kind IN {STORAGE_KINDS})")
        self.assertIn(("main",), functions)

    def test_a_million(self):
        """Created, viewed and released in two threads: of all that came nothing is left, neither storages nor
        blocks."""
        cycles = 1_000_000 if recording.IS_FULL else 60_000
        self.record(recording.program("storage_cycles"), str(cycles), options=["--stacks", "none"])
        self.assert_finished()
        self.assertEqual(self.sql("SELECT base_id IS NULL, count(*), count(destroy_seq) FROM storage GROUP BY 1 ORDER"
                                  " BY 1"),
                         [(0, cycles, cycles), (1, cycles, cycles)])
        self.assertEqual(self.one("SELECT count(*) FROM storage v JOIN storage b ON b.id = v.base_id "
                                  "WHERE b.allocation_id IS NOT v.allocation_id OR b.destroy_seq < v.create_seq"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM storage s LEFT JOIN allocation a ON a.id = s.allocation_id"
                                  " WHERE a.id IS NULL"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM allocation a JOIN domain d ON d.code = a.domain "
                                  "WHERE d.name = 'block' AND a.free_completed_seq IS NULL"), 0)
        self.assertEqual(self.one("SELECT count(*) FROM allocation a JOIN domain d ON d.code = a.domain WHERE d.name"
                                  " = 'block'"), cycles)
        self.assertEqual(self.one("SELECT count(*) FROM storage_leak"), 0)

    def test_two_processes(self):
        self.record(example("two_processes"))
        self.assert_finished()
        self.assertEqual(self.one("SELECT count(*) FROM events WHERE kind = 'share'"), 2)
        self.assertEqual(self.one("SELECT count(DISTINCT pid) FROM events WHERE kind = 'share'"), 2)
        self.assert_all_gone()

    def test_a_mapped_file(self):
        self.record(example("mapped_file"), options=["--stacks", "none"])
        self.assert_finished()
        self.assertEqual(self.one("SELECT count(*) FROM events WHERE kind = 'map' AND size = 64 << 20"), 1)
        self.assertEqual(self.one("SELECT count(*) FROM events WHERE kind = 'transfer' AND size = 4 << 20"), 16)
        self.assert_all_gone()

    def test_leaks(self):
        self.record(example("leak_hunt"))
        self.assert_finished()
        leaks = self.sql("SELECT id, size, callsite_id FROM events WHERE kind = 'leak'")
        self.assertEqual(len(leaks), 92)  # each storage of the group, and the two of the cycle
        for identity, size, callsite in leaks:
            self.assertEqual(self.sql("SELECT size, callsite_id FROM events WHERE kind = 'storage_create' AND id = ?",
                                      identity), [(size, callsite)])
            self.assertEqual(self.count("storage_destroy", "id = ?", identity), 0)


if __name__ == "__main__":
    recording.main()
