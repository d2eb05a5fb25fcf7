# SPDX-License-Identifier: Apache-2.0
"""Process images as valgrind and as varve saw them, and which is which.

Valgrind writes one log per process image (PREFIX.PID.N; N > 1 after a fork). A log without a heap summary belongs to
an image that exec replaced. The report of a fork child goes on with its parent's counters, while varve counts what
each process did itself: so the parent's events are replayed to the one point at which its counters and live blocks,
together with the child's own events, arrive at valgrind's figures in all five. Where there is no such point, the two
differ. heap_vs_valgrind calls it.
"""

import collections
import glob
import mmap
import os
import re
import sqlite3

Figures = collections.namedtuple("Figures", "allocs frees bytes live_blocks live_bytes")
ZERO = Figures(0, 0, 0, 0, 0)

KIND_ALLOC, KIND_FREE, KIND_REALLOC, KIND_MMAP, KIND_START = 32, 33, 34, 35, 49
CAUSE_REALLOC = 18
FLAG_FAILED = 1

USE = re.compile(r"in use at exit: ([\d,]+) bytes in ([\d,]+) blocks")
TOTAL = re.compile(r"total heap usage: ([\d,]+) allocs, ([\d,]+) frees, ([\d,]+) bytes allocated")
COMMAND = re.compile(r"^==\d+== Command: (.*?)\n==\d+== Parent PID", re.S | re.M)
# --trace-malloc=yes: realloc(NULL, n) goes on with a malloc on the same line, realloc(p, 0) with a free. What failed is
# not counted, but for realloc (see FailedReallocs).
TRACE = re.compile(r"\b(?:malloc\((\d+)\)(?! = 0x0\n)|calloc\((\d+),(\d+)\)(?! = 0x0\n)"
                   r"|memalign\(al \d+, size (\d+)\)(?! = 0x0\n)|_Zn[aw]\w+\((?:size )?(\d+)"
                   r"|realloc\(0x[0-9A-F]*[1-9A-F][0-9A-F]*,(\d+)\)(?!free))")
SIZE_LIMIT = 1 << 64


def subtract(one, other):
    return Figures(*(a - b for a, b in zip(one, other)))


def command_key(text, normalize):
    """One spelling of a command line: valgrind escapes with backslashes and gives children the path as argv[0]."""
    words = re.sub(r"[\s\0]+", " ", text.replace("\\", "")).strip().split(" ")
    return normalize(" ".join([os.path.basename(words[0])] + words[1:]))


class Report:
    """What one log of valgrind says. `sizes`: how many blocks of each size it saw allocated."""

    def __init__(self, path, normalize):
        with open(path, encoding="utf-8", errors="replace") as stream:
            text = stream.read()
        self.pid, self.fork_depth = (int(part) for part in path.split(".")[-2:])
        self.is_forked = self.fork_depth > 1
        self.command = COMMAND.search(text).group(1)
        self.key = command_key(self.command, normalize)
        use, total = USE.search(text), TOTAL.search(text)
        self.figures = None
        if use and total:
            live_bytes, live_blocks = (int(part.replace(",", "")) for part in use.groups())
            allocs, frees, size = (int(part.replace(",", "")) for part in total.groups())
            self.figures = Figures(allocs, frees, size, live_blocks, live_bytes)
        self.sizes = collections.Counter()
        for match in TRACE.finditer(text):
            numbers = [int(group) for group in match.groups() if group is not None]
            size = numbers[0] * numbers[1] if len(numbers) == 2 else numbers[0]
            self.sizes[size] += size < SIZE_LIMIT

    def is_consistent(self):
        """Of an image that is no fork: its trace adds up to its summary."""
        size = sum(size * count for size, count in self.sizes.items())
        return (sum(self.sizes.values()), size) == (self.figures.allocs, self.figures.bytes)


def read_reports(prefix, normalize):
    return [Report(path, normalize) for path in glob.glob(glob.escape(prefix) + ".*")]


class Image:
    """A process image in the database. `base` is what it began with: (Figures, {address: size}); for a fork child it is
    known once its parent's state at the fork has been found."""

    def __init__(self, row, parent_id, figures, normalize):
        self.id, self.pid, self.executable, self.command, self.end_cause = row
        self.parent_id = parent_id
        self.is_forked = parent_id != 0
        self.is_replaced = self.end_cause == "exec"
        self.key = command_key(self.command, normalize)
        self.figures = figures
        self.base = None if self.is_forked else (ZERO, {})


class Database:
    def __init__(self, path, normalize):
        self.connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        self.connection.execute("CREATE TEMP VIEW own AS SELECT t.process_id, e.* FROM event e"
                                " JOIN thread t ON t.id = e.thread_id")
        starts = dict(self.rows(f"SELECT process_id, arg FROM own WHERE kind = {KIND_START}"))
        figures = {row[0]: Figures(*row[1:]) for row in self.rows(
            "SELECT t.process_id, allocations, frees, bytes, count(a.id), coalesce(sum(a.size), 0) FROM total_process t"
            " LEFT JOIN allocation a ON a.process_id = t.process_id AND a.domain = 1 AND a.free_ns IS NULL"
            " WHERE t.domain = 'heap' GROUP BY 1")}
        self.images = [Image(row, starts.get(row[0]) or 0, figures.get(row[0], ZERO), normalize) for row in self.rows(
            "SELECT id, pid, executable, command_line, end_cause FROM process ORDER BY id")]
        self.by_id = {image.id: image for image in self.images}
        self.events_of = {}

    def close(self):
        self.connection.close()

    def rows(self, query, *parameters):
        return self.connection.execute(query, parameters).fetchall()

    def losses(self):
        """Why this recording must not be compared: [] if it is whole."""
        lines = [f"data loss: {name} = {value}" for name, value in self.rows("SELECT name, value FROM data_loss")]
        if not self.rows("SELECT 1 FROM meta WHERE key = 'complete' AND value = 1"):
            lines.append("the recording is not complete")
        return lines

    def events(self, image):
        if image.id not in self.events_of:
            self.events_of[image.id] = self.rows(
                "SELECT seq, kind, addr, size, arg, cause, flags, thread_id FROM own WHERE process_id = ? AND kind IN"
                f" ({KIND_ALLOC}, {KIND_FREE}, {KIND_REALLOC}) ORDER BY seq", image.id)
        return self.events_of[image.id]

    def counted(self, image, where):
        return collections.Counter(dict(self.rows(
            f"SELECT size, count(*) FROM own WHERE process_id = ? AND {where} GROUP BY 1", image.id)))

    def sizes(self, image):
        return self.counted(image, f"kind IN ({KIND_ALLOC}, {KIND_REALLOC}) AND addr <> 0"
                                   f" AND coalesce(flags, 0) & {FLAG_FAILED} = 0")

    def failed_reallocs(self, image):
        return self.counted(image, f"kind = {KIND_REALLOC} AND flags & {FLAG_FAILED} <> 0")

    def live_blocks(self, image, size):
        return self.rows("SELECT count(*) FROM allocation WHERE process_id = ? AND domain = 1 AND free_ns IS NULL"
                         " AND size = ?",
                         image.id, size)[0][0]

    def mapped(self, image):
        """(address, bytes) of each mmap by the program itself that has no file behind it."""
        return self.rows(f"SELECT addr, size FROM own WHERE process_id = ? AND kind = {KIND_MMAP} AND addr <> 0"
                         f" AND (arg >> 32) & {mmap.MAP_ANONYMOUS} <> 0", image.id)

    def allocated_by(self, size, functions, file):
        """How many blocks of a size were allocated while one of these Python functions of a file ran."""
        marks = ", ".join("?" * len(functions))
        return self.rows(f"SELECT count(*) FROM event e WHERE e.kind = {KIND_ALLOC} AND e.size = ? AND EXISTS (SELECT 1"
                         " FROM frame f WHERE f.callsite_id = e.callsite_id AND f.is_python AND f.file = ? AND f.depth"
                         " = (SELECT min(g.depth) FROM frame g WHERE g.callsite_id = e.callsite_id AND g.is_python)"
                         f" AND f.function IN ({marks}))", size, file, *functions)[0][0]

    def first_seq(self, image):
        return self.rows("SELECT min(seq) FROM own WHERE process_id = ?", image.id)[0][0]


class Replay:
    """The counters and live blocks of an image, event by event, from what it began with."""

    def __init__(self, base):
        figures, live = base
        self.allocs, self.frees, self.bytes = figures.allocs, figures.frees, figures.bytes
        self.live, self.live_bytes, self.pending_realloc = dict(live), sum(live.values()), {}

    def figures(self):
        return Figures(self.allocs, self.frees, self.bytes, len(self.live), self.live_bytes)

    def close(self, address):
        size = self.live.pop(address, None)
        if size is not None:
            self.frees += 1
            self.live_bytes -= size
        return size

    def open(self, address, size):
        self.close(address)
        self.live[address] = size
        self.live_bytes += size

    def take(self, event):
        _, kind, address, size, old, cause, flags, thread = event
        has_failed = (flags or 0) & FLAG_FAILED
        if kind == KIND_FREE:
            given_up = self.close(address)
            if cause == CAUSE_REALLOC and given_up is not None:
                self.pending_realloc[thread] = given_up
        elif kind == KIND_REALLOC and has_failed:
            self.open(old or address, self.pending_realloc[thread])
            self.frees -= 1
        elif address and not has_failed:
            self.open(address, size)
            self.allocs += 1
            self.bytes += size


def final_figures(database, image, base):
    replay = Replay(base)
    for event in database.events(image):
        replay.take(event)
    return replay.figures()


def fork_point(database, parent, child, wanted):
    """The state of `parent` from which `child` (None: one that never calls the allocator) arrives at the figures that
    are wanted: (seq of the parent's last event before the fork, state), or None."""
    if parent.base is None:
        return None
    own_allocs, own_bytes, before = 0, 0, None
    if child:
        own_allocs, own_bytes, before = child.figures.allocs, child.figures.bytes, database.first_seq(child)
    replay = Replay(parent.base)
    for event in [None] + database.events(parent):
        if event:
            if before is not None and event[0] > before:
                return None
            replay.take(event)
        if (replay.allocs + own_allocs, replay.bytes + own_bytes) == (wanted.allocs, wanted.bytes):
            state = (replay.figures(), dict(replay.live))
            if (final_figures(database, child, state) if child else state[0]) == wanted:
                return (event[0] if event else 0), state
    return None


class Pair:
    """One process image of both, or of one only. `varve` None: not found there; `note`: what had to be done."""

    def __init__(self, report, image, varve, note=""):
        self.report, self.image, self.varve, self.note = report, image, varve, note
        self.valgrind = report.figures if report else None
        self.is_matched = self.valgrind is not None and varve is not None
        self.command = report.key if report else image.key
        self.executable = os.path.basename(image.executable) if image else self.command.split(" ")[0]

    def difference(self):
        return subtract(self.valgrind, self.varve)


def pair_executed(reports, images):
    """Images that exec made: by command line, then by order."""
    pairs, waiting = [], collections.defaultdict(collections.deque)
    for image in images:
        waiting[image.key].append(image)
    for report in reports:
        if waiting[report.key]:
            image = waiting[report.key].popleft()
            pairs.append(Pair(report, image, image.figures))
        elif report.figures == ZERO:
            pairs.append(Pair(report, None, ZERO, "never calls the allocator, so varve has no such process"))
        else:
            pairs.append(Pair(report, None, None, "varve has no such process"))
    return pairs + [Pair(None, image, image.figures, "valgrind has no such process") for rest in waiting.values()
                    for image in rest]


def pair_forked(database, reports, images):
    """Fork children that end without exec, in order. One that varve has not seen must be a copy of its parent."""
    pairs, left = [], list(images)
    for report in reports:
        image = next((image for image in left if image.key == report.key), None)
        found = fork_point(database, database.by_id[image.parent_id], image, report.figures) if image else None
        if found:
            left.remove(image)
            image.base = found[1]
            pairs.append(Pair(report, image, final_figures(database, image, image.base),
                              f"fork of process {image.parent_id} after its event {found[0]}: counters continued"))
            continue
        parents = [other for other in database.images if other.key == report.key]
        found = next(filter(None, (fork_point(database, parent, None, report.figures) for parent in parents)), None)
        if found:
            pairs.append(Pair(report, None, found[1][0],
                              f"fork after event {found[0]}; calls no allocator: its parent's counters"))
        else:
            pairs.append(Pair(report, None, None, "no point of its parent's history fits this fork child"))
    return pairs + [Pair(None, image, image.figures, "valgrind has no such fork child") for image in left]


def match(reports, root, database, recorder, pid_max):
    """All pairs, in the order of creation; images that exec replaced are in neither tool's final account. `root`,
    `recorder`: pids from which valgrind's and varve's process numbers count, so that their wrapping does no harm."""
    ended = sorted((report for report in reports if report.figures),
                   key=lambda report: ((report.pid - root) % pid_max, report.fork_depth))
    kept = sorted((image for image in database.images if not image.is_replaced),
                  key=lambda image: (image.pid - recorder) % pid_max)
    return (pair_executed([report for report in ended if not report.is_forked],
                          [image for image in kept if not image.is_forked])
            + pair_forked(database, [report for report in ended if report.is_forked],
                          [image for image in kept if image.is_forked]))


# ---- how the two may rightly differ ----
#
# Mechanisms, each with a rule that is checked to the byte. Rules are asked only when figures differ. Evidence knows how
# many blocks of each size one side allocated and the other did not; a rule takes from that what its mechanism predicts,
# from sources other than the difference itself, and says by how much the figures must differ because of it. Whatever is
# left over in the end fails the comparison. heap_vs_valgrind_programs.py says which rule may hold where.


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
