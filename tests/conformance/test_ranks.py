#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 6 s
"""Ranks beside each other: what the views rank_* say equals what their definitions give over the events, the report
names a rank that is unlike the others with its line, and accuses nobody where all do the same."""

import json
import os
import statistics
import sys
import textwrap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
from torch_shim import FAKE, FAKE_LIBRARY, LIBRARY, SHIM, OnVarve  # noqa: E402

PROGRAM = os.path.join(recording.ROOT, "tests", "programs", "python", "unlike_rank.py")
RANKS, STEPS, SPANS = 5, 12, 50
FIGURES = ("peak_bytes", "reserved_bytes", "bytes", "allocations", "failed")


class Block:
    def __init__(self, event, line):
        self.alloc_seq, self.size, self.line, self.free_seq = event["seq"], event["size"], line, None

    def is_live(self, seq):
        return self.alloc_seq <= seq and (self.free_seq is None or self.free_seq > seq)


class Process:
    """What a process's caching allocator did, from its events."""

    def __init__(self):
        self.blocks, self.live, self.at = [], {}, []  # at: (ts_ns, seq, live bytes) after each event
        self.reserved = self.reserved_most = self.bytes = 0

    def take(self, event, line):
        if event["kind"] in ("segment_alloc", "segment_free"):
            self.reserved += event["size"] if event["kind"] == "segment_alloc" else -event["size"]
            self.reserved_most = max(self.reserved_most, self.reserved)
        elif event["kind"] == "alloc":
            self.live[event["addr"]] = block = Block(event, line)
            self.blocks.append(block)
            self.bytes += block.size
        elif event["kind"] == "free_requested":
            block = self.live.pop(event["addr"])
            block.free_seq = event["seq"]
            self.bytes -= block.size
        elif event["kind"] != "free_completed":
            return
        self.at.append((event["ts_ns"], event["seq"], self.bytes))

    def peak(self):
        """Bytes, and the first event after which so many were live."""
        _, seq, most = max(self.at, key=lambda moment: (moment[2], -moment[1]))
        return most, seq


class RanksCase(OnVarve):
    def record_ranks(self, unlike, *options, ranks=RANKS, steps=STEPS):
        self.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": FAKE, "VARVE_TORCH_DEVICE": "host",
                            "VARVE_TORCH_LIBRARY": LIBRARY, "VARVE_PYTHON": os.path.join(SHIM, "sitecustomize.py"),
                            "FAKE_TORCH_LIBRARY": FAKE_LIBRARY}
        self.record(sys.executable, PROGRAM, str(ranks), str(steps), str(unlike), env=self.environment,
                    options=["-q", "--torch", "--stacks", "python", *options], cwd=self.folder)
        self.assert_finished()
        self.assertEqual(self.sql("SELECT * FROM data_loss"), [])

    def rows(self, query, *values):
        cursor = self.connection.execute(query, values)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row)) for row in cursor]

    def processes(self):
        """By rank, its processes that allocated, by their numbers."""
        lines = dict(self.sql("SELECT id, coalesce(user_symbol_id, symbol_id) FROM callsite"))
        found = {}
        for event in self.rows("SELECT e.*, t.process_id, p.rank FROM events e JOIN thread t ON t.id = e.thread_id "
                               "JOIN process p ON p.id = t.process_id WHERE p.rank IS NOT NULL ORDER BY e.seq"):
            process = found.setdefault(event["rank"], {}).setdefault(event["process_id"], Process())
            process.take(event, lines.get(event["callsite_id"]))
        return found

    def main_processes(self, found):
        return {rank: max(processes.items(), key=lambda item: item[1].peak()[0]) for rank, processes in found.items()}

    # ---- the definitions once more ----

    def expected_totals(self, found):
        totals = {}
        for rank, (number, process) in self.main_processes(found).items():
            blocks = [block for one in found[rank].values() for block in one.blocks]
            totals[rank] = {"rank": rank, "processes": len(found[rank]), "process_id": number,
                            "peak_bytes": process.peak()[0], "peak_seq": process.peak()[1],
                            "reserved_bytes": process.reserved_most, "allocations": len(blocks),
                            "bytes": sum(block.size for block in blocks), "failed": 0}
        return totals

    def expected_spans(self, found):
        """By rank and span: the most that was live in it, and a span that has none before the rank's first event."""
        main = {rank: process for rank, (_, process) in self.main_processes(found).items()}
        times = [ts for process in main.values() for ts, _, _ in process.at]
        begin, width = min(times), (max(times) - min(times)) // SPANS + 1
        ends = dict(self.sql("SELECT id, end_ns FROM process"))
        spans = {}
        for rank, (number, process) in self.main_processes(found).items():
            last = None
            for span in range(SPANS):
                inside = [live for ts, _, live in process.at if begin + span * width <= ts < begin + (span + 1) * width]
                seen = ([last] if last is not None else []) + inside
                last = inside[-1] if inside else last
                if seen and begin + span * width <= ends[number]:
                    spans[begin + span * width, rank] = max(seen)
        return spans

    def live(self, process, seq):
        lines = {}
        for block in process.blocks:
            if block.is_live(seq):
                lines[block.line] = lines.get(block.line, 0) + block.size
        return lines

    # ---- compared ----

    def check_totals(self, found):
        expected = self.expected_totals(found)
        rows = self.rows("SELECT * FROM rank_total WHERE domain = 'block' ORDER BY rank")
        self.assertEqual([{key: row[key] for key in expected[row["rank"]]} for row in rows],
                         [expected[rank] for rank in sorted(expected)])
        self.assertEqual([(row["peak_ns"],) for row in rows], [self.sql("SELECT ts_ns FROM event_own WHERE seq = ?",
                                                                       row["peak_seq"])[0] for row in rows])
        self.assertGreater(expected[0]["processes"], 1, "rank 0 has a worker")
        return expected

    def check_differences(self, totals):
        seen = {}
        for row in self.rows("SELECT * FROM rank_difference WHERE domain = 'block'"):
            values = [total[row["figure"]] for total in totals.values()]
            median = statistics.median(values)
            self.assertEqual((row["value"], row["median"]), (totals[row["rank"]][row["figure"]], median))
            if median:
                self.assertAlmostEqual(row["deviation"], row["value"] / median - 1)
            self.assertEqual(row["is_unlike"], int(abs(row["value"] - median) > 0.1 * median))
            seen.setdefault(row["figure"], set()).add(row["rank"])
        self.assertEqual(seen, {figure: set(totals) for figure in FIGURES})

    def check_lines(self, found):
        lines, main = {}, self.main_processes(found)
        for rank, processes in found.items():
            for process in processes.values():
                for block in process.blocks:
                    line = lines.setdefault((rank, block.line), [0, 0])
                    line[0], line[1] = line[0] + 1, line[1] + block.size
        expected = sorted((rank, line, count, size, self.live(main[rank][1], main[rank][1].peak()[1]).get(line, 0))
                          for (rank, line), (count, size) in lines.items())
        self.assertEqual(self.sql("SELECT rank, user_symbol_id, allocations, bytes, peak_bytes FROM rank_line "
                                  "WHERE domain = 'block' ORDER BY 1, 2"), expected)
        for row in self.rows("SELECT * FROM rank_line_difference WHERE domain = 'block'"):
            column = {"allocations": 2, "bytes": 3, "peak_bytes": 4}[row["figure"]]
            values = {line[0]: line[column] for line in expected if line[1] == row["user_symbol_id"]}
            median = statistics.median(values.get(rank, 0) for rank in found)
            self.assertEqual((row["value"], row["median"], row["difference"]),
                             (values.get(row["rank"], 0), median, values.get(row["rank"], 0) - median))

    def check_spans(self, found):
        expected = self.expected_spans(found)
        rows = self.rows("SELECT * FROM rank_span WHERE domain = 'block'")
        self.assertEqual({(row["begin_ns"], row["rank"]): row["allocated"] for row in rows}, expected)
        main = self.main_processes(found)
        for row in rows:
            self.assertEqual(sum(self.live(main[row["rank"]][1], row["seq"]).values()), row["allocated"])
        spans = {}
        for (begin, rank), allocated in expected.items():
            spans.setdefault(begin, {})[rank] = allocated
        imbalance = {begin: (len(ranks), max(ranks.values()), min(ranks.values()))
                     for begin, ranks in spans.items() if len(ranks) > 1}
        rows = self.rows("SELECT * FROM rank_imbalance WHERE domain = 'block'")
        self.assertEqual({row["begin_ns"]: (row["ranks"], row["most_bytes"], row["least_bytes"]) for row in rows},
                         imbalance)
        for row in rows:
            ranks = spans[row["begin_ns"]]
            self.assertEqual((ranks[row["most_rank"]], ranks[row["least_rank"]], row["difference"]),
                             (row["most_bytes"], row["least_bytes"], row["most_bytes"] - row["least_bytes"]))
        farthest = max(rows, key=lambda row: row["difference"])["difference"]
        self.assertEqual(sum(row["bytes"] * (1 if row["moment"] == "most" else -1) for row in self.rows(
            "SELECT * FROM rank_live WHERE domain = 'block' AND moment <> 'peak'")), farthest)

    def check(self, ranks=RANKS):
        found = self.processes()
        self.assertEqual(sorted(found), list(range(ranks)))
        totals = self.check_totals(found)
        self.check_differences(totals)
        self.check_lines(found)
        self.check_spans(found)

    def ranks_text(self):
        lines = self.varve("report", self.path).out.splitlines()
        begin = lines.index("Ranks")
        return lines[begin:lines.index("", begin)]

    def test_one_is_unlike(self):
        self.record_ranks(3)
        self.check()
        text = self.ranks_text()
        self.assertEqual(text[2].split()[:2], ["block", "3"], "who peaks comes first")
        self.assertEqual([line.split(":")[0].strip() for line in text if "is unlike" in line],
                         ["rank 3 is unlike the others"])
        with open(PROGRAM, encoding="utf-8") as stream:
            kept = 1 + [("# kept:" in line) for line in stream].index(True)
        accused = [line.split() for line in text if line.startswith("     3  ")]
        self.assertEqual([(line[1], line[2].rpartition(":")[2]) for line in accused],
                         [("keep_for_debugging", str(kept))])
        answer = json.loads(self.varve("report", "--json", self.path).out)
        self.assertEqual([row["rank"] for row in answer["ranks"] if row["domain"] == "block"], list(range(RANKS)))
        self.assertEqual({row["rank"] for row in answer["rank_differences"] if row["is_unlike"]}, {3})
        worst = max((row for row in answer["rank_lines"] if row["figure"] == "peak_bytes"),
                    key=lambda row: abs(row["difference"]))
        self.assertEqual((worst["rank"], worst["user_function"], worst["user_line"], worst["difference"]),
                         (3, "keep_for_debugging", kept, worst["value"]))
        self.assertEqual(len(answer["rank_imbalance"]), self.one("SELECT count(*) FROM rank_imbalance"))

    def test_all_are_alike(self):
        """Their sizes differ by some 512 bytes, which is within a tenth. An even number of ranks has other medians."""
        self.record_ranks(-1, ranks=4)
        self.check(4)
        self.assertEqual(self.sql("SELECT * FROM rank_difference WHERE is_unlike"), [])
        text = "\n".join(self.ranks_text())
        self.assertIn("no rank is unlike the others: each figure is within", text)
        self.assertNotRegex(text, r"rank \d+ is unlike|line that makes|of it by")

    def test_without_rows_of_allocations(self):
        """What was live at a peak is not known then; the line is that of all bytes."""
        self.record_ranks(3, "--keep", "totals")
        self.assertEqual(self.sql("SELECT count(*), count(peak_bytes) FROM rank_line"),
                         [(self.one("SELECT count(*) FROM rank_line"), 0)])
        self.assertEqual(self.sql("SELECT * FROM rank_live"), [])
        accused = [line.split()[1] for line in self.ranks_text() if line.startswith("     3  ")]
        self.assertEqual(accused, ["keep_for_debugging"])

    def test_one_rank(self):
        self.record_ranks(-1, ranks=1)
        self.assertNotIn("\nRanks", self.varve("report", "--all", self.path).out)
        self.assertNotIn("ranks", json.loads(self.varve("report", "--json", self.path).out))


class Launcher(recording.Case):
    """As torchrun under srun: its own SLURM_PROCID is the node's, and no rank of the program."""

    PROGRAM = """
        import os, subprocess, sys
        kept = bytearray(20_000_000)
        work = "kept = bytearray(1_000_000)"
        for rank in sys.argv[1:]:
            subprocess.run([sys.executable, "-c", work], env={**os.environ, "RANK": rank}, check=True)
        """

    def ranks(self, *ranks):
        path = os.path.join(self.folder, "launcher.py")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(textwrap.dedent(self.PROGRAM))
        self.record(sys.executable, path, *ranks, options=["-q", "-f", "--stacks", "none"],
                    env={**os.environ, "SLURM_PROCID": "1"})
        self.open()
        return self.sql("SELECT rank, processes FROM rank_total WHERE domain = 'heap' ORDER BY rank")

    def test_launcher_is_no_rank(self):
        self.assertEqual(self.ranks("8", "9"), [(8, 1), (9, 1)])

    def test_workers_of_a_rank(self):
        """Processes of the same rank are all of it."""
        self.assertEqual(self.ranks("1", "1"), [(1, 3)])


if __name__ == "__main__":
    recording.main()
