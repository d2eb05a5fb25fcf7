# SPDX-License-Identifier: Apache-2.0
"""The mechanisms by which valgrind and varve may rightly differ, each with a rule that is checked to the byte.

Rules are asked only when figures differ. Evidence knows how many blocks of each size one side allocated and the other
did not; a rule takes from that what its mechanism predicts, from sources other than the difference itself, and says by
how much the figures must differ because of it. Whatever is left over in the end fails the comparison.
heap_vs_valgrind_programs.py says which rule may hold where.
"""

import collections

from heap_vs_valgrind_match import Figures, ZERO, subtract


class Evidence:
    """The difference of a pair, valgrind's minus varve's, in figures and in blocks per size; rules take from both.
    `record_again` gives a database of the same command with Python stacks."""

    def __init__(self, pair, database, record_again):
        self.pair, self.database, self.record_again = pair, database, record_again
        self.figures = pair.difference()
        self.ours = database.sizes(pair.image)
        self.sizes = collections.Counter(pair.report.sizes)
        self.sizes.subtract(self.ours)

    def take(self, sizes, live_blocks, live_bytes):
        """Account for these blocks, of which so many are in use at exit; what is not in use was freed."""
        allocs, size = sum(sizes.values()), sum(size * count for size, count in sizes.items())
        self.sizes.subtract(sizes)
        self.figures = subtract(self.figures, Figures(allocs, allocs - live_blocks, size, live_blocks, live_bytes))

    def explain(self, rules):
        return [text for text in (rule.apply(self) for rule in rules) if text]

    def is_complete(self):
        return self.figures == ZERO and not any(self.sizes.values())

    def left(self):
        sizes = {size: count for size, count in sorted(self.sizes.items()) if count}
        return f"figures {tuple(self.figures)}, valgrind's blocks minus varve's by size {sizes}"


class ThreadVectors:
    """The recorder has thread-local variables, valgrind's preloaded libraries have none: glibc's vector of modules that
    have (dtv: 16 bytes for each of them and 16 more) is one entry longer for every thread that gets a new stack."""

    ENTRY, SPARE, MODULES_MAX = 16, 16, 16

    def __init__(self, threads):
        self.threads = threads

    def apply(self, evidence):
        for modules in range(1, self.MODULES_MAX):
            size = self.ENTRY * (self.SPARE + modules)
            longer = size + self.ENTRY
            if (evidence.sizes[size], evidence.sizes[longer]) == (self.threads, -self.threads):
                live = evidence.database.live_blocks(evidence.pair.image, longer)
                evidence.take({size: self.threads, longer: -self.threads}, 0, -self.ENTRY * live)
                return (f"dtv: new stacks for {self.threads} thread(s), {size} -> {longer} bytes each, because the"
                        " recorder has thread-local variables")
        return None


class CollectorTables:
    """cc1's garbage collector (gcc/ggc-page.cc) finds pages in tables that are never freed: 4096 pointers for each 16
    MiB of addresses that it mapped, and a header with 256 pointers for each 4 GiB. How many areas the same pages touch
    depends on where the kernel, or valgrind, puts them."""

    TABLES = ((32768, 24), (16 + 256 * 8, 32))

    def apply(self, evidence):
        texts = []
        for size, bits in self.TABLES:
            ours, more = evidence.ours[size], evidence.sizes[size]
            areas = {address >> bits for start, length in evidence.database.mapped(evidence.pair.image)
                     for address in (*range(start, start + length, 1 << bits), start + length - 1)}
            if more and ours == len(areas) and ours + more > 0:
                evidence.take({size: more}, more, more * size)
                texts.append(f"ggc: its pages touch {ours} areas of {1 << bits >> 20} MiB here and {ours + more} in"
                             f" valgrind's address space, with a table of {size} bytes for each")
        return "; ".join(texts)


class ThreadIdentities:
    """A Python int takes 28 bytes below 2^30 and 32 above. importlib's module locks ask for the thread's identity at
    each acquire and release, which is the address of its control block: low in valgrind's address space, high in the
    kernel's. Python's own allocator hides it; with malloc below it shows."""

    SMALL, LARGE = 28, 32
    FUNCTIONS, FILE = ("acquire", "release"), "<frozen importlib._bootstrap>"

    def apply(self, evidence):
        count = evidence.sizes[self.SMALL]
        if count <= 0 or evidence.sizes[self.LARGE] != -count:
            return None
        database = evidence.record_again()
        try:
            predicted = database.allocated_by(self.LARGE, self.FUNCTIONS, self.FILE)
        finally:
            database.close()
        if predicted != count:
            return None
        evidence.take({self.SMALL: count, self.LARGE: -count}, 0, 0)
        return (f"int(pthread_self()): {count} in importlib's module locks, {self.LARGE} bytes here and {self.SMALL} in"
                " valgrind's low address space")


class FailedReallocs:
    """Valgrind counts a realloc as a free and an allocation before it knows that there is no memory; varve does not."""

    def apply(self, evidence):
        failed = evidence.database.failed_reallocs(evidence.pair.image)
        if not failed or any(evidence.sizes[size] != count for size, count in failed.items()):
            return None
        evidence.take(failed, 0, 0)
        return f"failed realloc: {sum(failed.values())} of {', '.join(map(str, failed))} bytes, counted by valgrind"
