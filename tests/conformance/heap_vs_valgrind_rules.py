# SPDX-License-Identifier: Apache-2.0
"""The mechanisms by which valgrind and varve may rightly differ, each with a rule that is checked to the byte.

A rule is asked only when figures differ. It sees how many blocks of each size one side has and the other has not, takes
from that what its mechanism predicts, and says by how much the figures must differ because of it. What is left over,
or a sum that does not come out, fails the comparison. heap_vs_valgrind_programs.py says which rule holds where.
"""

import collections

from heap_vs_valgrind_match import Figures

POINTER = 8


class Explained:
    """What a rule accounts for, as valgrind's figures minus varve's."""

    def __init__(self, text, sizes, figures):
        self.text, self.sizes, self.figures = text, sizes, figures


class ThreadVectors:
    """The recorder has thread-local variables, valgrind's preloaded libraries have none: glibc's vector of such modules
    (dtv, calloc of 16 bytes times modules + 16) is one entry longer for each thread whose stack is new."""

    ENTRY, SPARE = 16, 16
    TEXT = "dtv: {} threads, {} -> {} bytes for the recorder's thread-local module"

    def __init__(self, threads):
        self.threads = threads

    def explain(self, pair, database, sizes):
        for size in sizes:
            with_recorder = size + self.ENTRY
            modules = size // self.ENTRY - self.SPARE
            if size % self.ENTRY or not 1 <= modules <= 16:
                continue
            if sizes[size] == self.threads and sizes[with_recorder] == -self.threads:
                live = database.live_blocks(pair.image, with_recorder)
                return Explained(self.TEXT.format(self.threads, size, with_recorder),
                                 collections.Counter({size: self.threads, with_recorder: -self.threads}),
                                 Figures(0, 0, -self.ENTRY * self.threads, 0, -self.ENTRY * live))
        return None


class CollectorTables:
    """cc1's garbage collector finds the page of an object in two-level tables: one of 4096 pointers for each 16 MiB of
    address space that its pages touch, never freed. How many that are depends on where the kernel, or valgrind, maps."""

    TABLE, REACH_BITS = 4096 * POINTER, 24
    TEXT = "ggc: {} and {} page tables of {} bytes, one for each 16 MiB of addresses in use"

    def explain(self, pair, database, sizes):
        count = sizes[self.TABLE]
        ours = database.sizes(pair.image)[self.TABLE]
        reached = {address >> self.REACH_BITS for start, length in database.mapped(pair.image)
                   for address in range(start, start + length, 4096)}
        if count == 0 or not 0 < ours <= len(reached):
            return None
        return Explained(self.TEXT.format(ours, ours + count, self.TABLE), collections.Counter({self.TABLE: count}),
                         Figures(count, 0, count * self.TABLE, count, count * self.TABLE))


def explain(rules, pair, database):
    """(texts, what is left of the difference in figures, what is left of it in sizes): all explained if both are 0."""
    rest = pair.difference()
    left = collections.Counter(pair.report.sizes)
    left.subtract(database.sizes(pair.image))
    texts = []
    for rule in rules:
        found = rule.explain(pair, database, left)
        if found:
            texts.append(found.text)
            left.subtract(found.sizes)
            rest = Figures(*(a - b for a, b in zip(rest, found.figures)))
    return texts, rest, {size: count for size, count in sorted(left.items()) if count}
