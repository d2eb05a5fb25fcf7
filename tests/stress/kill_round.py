# SPDX-License-Identifier: Apache-2.0
"""One recording, one or more kills at random moments, and everything that must hold afterwards.

The program stores, for each thread and after every hooked call, in a mapping of its own how many events it has emitted
by then. After the kills, and after `varve recover` where the collector was killed, the database must hold for each
thread at least that many and at most those of the interrupted call more. With --overflow drop, stored and lost
together must. With --keep lasting, allocations or totals there are not all events, and what the rings' rows and the
totals have, with what is told to be in none, must not be less. """

import json
import os
import random
import re
import signal
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

VICTIMS = ("program", "collector", "both", "collector-then-program", "recover")
POLICIES = ("spill", "block", "drop")
STACKS = ("none", "native", "python", "all")
RING_SIZES = ("4K", "64K", "4M")
KEEPS = ("events", "lasting", "allocations", "totals")
COUNTER = struct.Struct("<QQ48x")  # struct counter of churn.c, and what counted_python.py writes
PYTHON = "/usr/bin/python3"
PYTHON_SIZES = "size BETWEEN 100001 AND 101000"  # of counted_python.py
INTERRUPTED_MAX = 2  # a realloc emits two events before its counter is stored
HEAP_KINDS = "('heap_alloc', 'heap_free', 'heap_realloc')"


class WrongSums(AssertionError):
    """What the database says of itself does not agree."""


class KillRound(recording.Case):
    """`seed` decides everything. After play(): committed, lost."""

    def runTest(self):
        """Not run by unittest: `stress` drives it."""

    def prepare(self, seed):
        self.setUp()
        self.counters = os.path.join(self.folder, "counters")
        self.committed = self.lost = 0
        # Mixed radix: consecutive seeds go through all victims, then policies, stacks and sizes; chance does the rest.
        self.victim = VICTIMS[seed % 5]
        self.policy = POLICIES[seed // 5 % 3]
        self.stacks = STACKS[seed // 15 % 4]
        self.ring_size = RING_SIZES[seed // 60 % 3]
        self.keep = KEEPS[seed // 2 % 4]
        self.chance = random.Random(seed)
        self.threads = self.chance.randint(2, 8)
        self.is_python = self.stacks == "python" or (self.stacks == "all" and self.chance.random() < 0.5)
        self.delays = []

    def setting(self):
        return (f"{self.victim:22} {self.policy:5} {self.ring_size:>3} {self.stacks:6} {self.keep:11}"
                f" {self.threads} threads{' of python3' if self.is_python else ''}")

    # ---- running and killing ----

    def command(self):
        options = ["--overflow", self.policy, "--ring-size", self.ring_size, "--stacks", self.stacks, "--keep",
                   self.keep]
        if self.is_python:
            script = os.path.join(recording.ROOT, "tests", "programs", "python", "counted_python.py")
            return self.record_command(PYTHON, script, "0.3", str(self.threads), self.counters, options=options)
        return self.record_command(
            recording.program("churn"), "--seconds", "0.3", "--ops", str(60000 // self.threads), "--threads",
            str(self.threads),
            "--pace", self.chance.choice(("0", "0", "1")), "--seed", str(self.chance.randrange(1, 10**9)),
            "--counters", self.counters, options=options)

    def program_of(self, process):
        """Its pid, once it is there and has been executed; None if varve has ended already."""
        wanted = os.path.basename(os.path.realpath(PYTHON)) if self.is_python else "churn"
        pid = None
        while pid is None and process.poll() is None:
            pid = recording.program_of(process, wanted)
            time.sleep(0 if pid else 0.001)
        return pid

    def pause(self, seconds_max):
        self.delays.append(self.chance.random() ** 2 * seconds_max)
        time.sleep(self.delays[-1])

    def strike(self, process):
        """Kill as the round wants it; the end of varve."""
        program = self.program_of(process)
        self.pause(0.35 if self.victim == "collector" else 0.25)  # past the end too: it finishes then
        if self.victim == "both":
            os.killpg(process.pid, signal.SIGKILL)
        elif self.victim == "program":
            self.kill(program)
        else:
            process.kill()
            if self.victim == "collector-then-program":
                self.pause(0.1)
                self.kill(program)
        return recording.finish(process)

    @staticmethod
    def kill(program):
        try:
            if program:
                os.kill(program, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def play(self):
        process = recording.start(self.command())
        try:
            outcome = self.strike(process)
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        recording.wait_for_session(process)
        summary = None
        if self.victim == "program" or outcome.returncode == 0:
            self.assertIn(outcome.returncode, (-signal.SIGKILL, 0), outcome)
            summary = outcome.err
        else:
            self.assertEqual(outcome.returncode, -signal.SIGKILL, outcome)
            for _ in range(self.chance.randint(1, 4) if self.victim == "recover" else 0):
                self.kill_recover()
            summary = self.recover_if_needed()
        self.check(summary)

    def kill_recover(self):
        if os.path.isdir(self.path + ".d"):
            process = recording.start([recording.VARVE, "recover", self.path + ".d"])
            self.delays.append(self.chance.random() * 0.2)
            time.sleep(self.delays[-1])
            process.kill()
            outcome = recording.finish(process)
            self.assertIn(outcome.returncode, (-signal.SIGKILL, 0), outcome)

    def recover_if_needed(self):
        """A collector killed before its directory was usable, or after all was done, leaves nothing to recover."""
        if not os.path.isdir(self.path + ".d"):
            self.assertTrue(os.path.exists(self.path) or not self.counted(), os.listdir(self.folder))
            return None
        recovered = self.varve("recover", "--json", self.path + ".d")
        self.assertFalse(os.path.lexists(self.path + ".d"))
        return json.loads(recovered.out)

    # ---- checking ----

    def counted(self):
        """{tid: events} as the threads themselves stored it."""
        if not os.path.exists(self.counters):
            return {}
        with open(self.counters, "rb") as stream:
            content = stream.read()
        found = (COUNTER.unpack_from(content, at) for at in range(0, len(content), COUNTER.size))
        return {tid: events for tid, events in found if tid}

    def check(self, summary):
        counted = self.counted()
        self.committed = sum(counted.values())
        if not os.path.exists(self.path):
            self.lost = self.committed
            self.assertEqual(self.committed, 0, "events were committed, but there is no database")
            return
        self.open()
        self.count_missing(counted)
        self.check_sums(summary)
        self.check_totals()
        if self.keep == "events":
            self.assert_recording(may_lose=self.policy == "drop")
        else:
            self.assert_finished()
        self.assertEqual(self.lost, 0, f"committed records are missing: {counted}")

    def count_missing(self, counted):
        """What was committed is stored or, where the policy drops, lost by the ring's own figure; and not much more."""
        of_python = f" AND {PYTHON_SIZES} AND kind = 'heap_alloc'" if self.is_python else ""
        stored = dict(self.sql(f"SELECT tid, count(*) FROM events WHERE kind IN {HEAP_KINDS}{of_python} GROUP BY tid")
                      if self.keep == "events" else self.sql("SELECT tid, sum(stored) FROM thread GROUP BY tid"))
        lost = dict(self.sql("SELECT tid, sum(lost) FROM thread GROUP BY tid"))
        uncounted = []
        for tid, events in counted.items():
            there = stored.get(tid, 0) + lost.get(tid, 0)
            self.lost += max(0, events - there)
            # python3 allocates for itself as well: what it lost cannot be separated from what the script did
            is_apart = self.keep == "events" and not (self.is_python and lost.get(tid, 0))
            if there > events + INTERRUPTED_MAX and is_apart:
                uncounted.append((tid, events, there))
        if uncounted:
            raise WrongSums(f"more events than calls (thread, called, stored + lost): {uncounted}")

    def check_totals(self):
        """What the totals have of the heap, and what is told to be in none, is not below what was committed; and
        nothing is told so that is in one."""
        loss = dict(self.sql("SELECT name, sum(value) FROM data_loss GROUP BY name"))
        forgotten, unknown = loss.get("events_not_derived", 0), loss.get("frees_unknown", 0)
        there = self.one("SELECT coalesce(sum(allocations + frees), 0) FROM total_stat"
                         " WHERE process_id = 0 AND domain = 1")
        told = forgotten + unknown + loss.get("events_lost", 0) + loss.get("events_unattached", 0)
        problems = []
        if there + told < self.committed:
            problems.append(f"{self.committed} committed, but {there} in totals and {told} told: {loss}")
        stored, emitted = self.sql("SELECT sum(stored), sum(emitted) FROM thread")[0]
        # a free that was dropped, or forgotten, is inferred where its address is given out anew: it is told and there
        if emitted is not None and not loss.get("events_lost", 0) + forgotten and there + told > emitted:
            problems.append(f"{there} in totals and {told} told of {emitted} emitted: {loss}")
        if forgotten > (stored or 0) or (forgotten and (self.keep != "totals" or self.victim == "program")):
            problems.append(f"{forgotten} events of {stored} forgotten")
        if unknown and not forgotten and self.keep == "events" and unknown != self.count(
                "heap_free", "cause = 'unknown_address'"):
            problems.append(f"{unknown} frees of unknown blocks")
        if problems:
            raise WrongSums("\n".join(problems))

    def check_sums(self, summary):
        """emitted = stored + lost + uncommitted in each ring; stats, data_loss, thread rows, `info` and the summary
        agree."""
        try:
            if self.keep == "events":
                self.assert_conserved()
        except AssertionError as error:
            raise WrongSums(str(error)) from error
        problems = []

        def same(what, *figures):
            if len(set(figures)) != 1:
                problems.append(f"{what}: {figures}")

        names = ("emitted", "stored", "lost", "lost_bytes", "uncommitted")
        sums = {name: self.one(f"SELECT coalesce(sum({name}), 0) FROM thread") for name in names}
        for what, wrong in (
                ("thread, lost, but its lost events report of",
                 "SELECT t.id, t.lost, (SELECT sum(arg) FROM events e WHERE e.thread_id = t.id AND e.kind = 'lost')"
                 " AS reported FROM thread t WHERE reported > t.lost"),
                ("thread, emitted, stored, numbers in the ring, the largest",
                 "SELECT t.id, t.emitted, t.stored, count(DISTINCT e.ring_seq) AS numbers, max(e.ring_seq) AS largest"
                 " FROM thread t JOIN event e ON e.thread_id = t.id GROUP BY t.id HAVING (numbers <> t.stored AND"
                 f" '{self.keep}' = 'events') OR largest > t.emitted")):
            problems += [f"{what}: {row}" for row in self.sql(wrong)]
        stats = dict(self.sql("SELECT name, value FROM stats WHERE source = 'ring' AND idx = -1"))
        loss = dict(self.sql("SELECT name, value FROM data_loss"))
        for name in names:
            stat = "bytes_lost" if name == "lost_bytes" else "events_" + name
            same(f"{name}: thread rows, stats", sums[name], stats.get(stat))
            if name.startswith("lost"):
                same(f"{name}: thread rows, data_loss", sums[name], loss.pop(stat, 0))
        # killed before the recorder was loaded, or ready: nothing can have been recorded, and that is said
        is_recorded = loss.pop("processes_unrecorded", 0) + loss.pop("processes_unattached", 0) == 0
        if not is_recorded:
            same("recorded, though the recorder was not there", self.committed, sums["emitted"], 0)
        if self.keep == "totals":
            loss.pop("events_not_derived", None)  # see check_totals
        if sums["lost"] or self.keep == "totals":
            loss.pop("frees_unknown", None)
        if loss:
            problems.append(f"more in data_loss: {loss}")
        if self.policy != "drop":
            same("lost though nothing may be dropped", sums["lost"], 0)
        if is_recorded:
            self.check_said(summary, sums, same)
        if problems:
            raise WrongSums("\n".join(problems))

    def check_said(self, summary, sums, same):
        """What was said when the recording or the recovery ended; words may change, figures may not."""
        events = self.one("SELECT count(*) FROM event" if self.keep == "events" else
                          "SELECT coalesce(sum(stored), 0) FROM thread")
        if isinstance(summary, dict):
            for name, value in (("events", events), ("lost", sums["lost"]), ("uncommitted", sums["uncommitted"])):
                same(f"{name}: database, recover --json", value, summary[name])
        elif summary:
            line = summary.strip().splitlines()[-1]
            figures = [int(figure.replace(",", "")) for figure in re.findall(r"\b\d[\d,]*", line)]
            same(f"events: '{line}'", figures[0] if figures else None, events)
            same(f"lost: '{line}'", "nothing lost" in line,
                 sums["lost"] == 0 and not self.sql("SELECT 1 FROM data_loss"))
            if sums["lost"]:
                same(f"lost {sums['lost']}: '{line}'", sums["lost"] in figures, True)


def play(seed):
    """A round, whatever becomes of it: {setting, committed, lost, is_wrong, failure}."""
    import traceback
    case = KillRound()
    case.prepare(seed)
    result = {"is_wrong": False, "failure": None}
    try:
        case.play()
    except WrongSums as error:
        result.update(is_wrong=True, failure=f"wrong sums:\n{error}")
    except Exception:  # the other rounds are worth playing whatever it is
        result["failure"] = traceback.format_exc()
    finally:
        if result["failure"] and os.environ.get("VARVE_STRESS_KEEP"):
            import shutil
            kept = os.path.join(os.environ["VARVE_STRESS_KEEP"], f"seed-{seed}")
            shutil.copytree(case.folder, kept, symlinks=True, dirs_exist_ok=True)
        case.doCleanups()
    after = " + ".join(f"{delay:.3f}" for delay in case.delays)
    result.update(setting=f"{case.setting()}, killed after {after} s", committed=case.committed, lost=case.lost)
    return result
