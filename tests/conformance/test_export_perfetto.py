#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
"""`varve export --to perfetto`, read by Google's protocol buffers. Perfetto's own trace_processor is in no package:
what it demands of a trace is checked here instead. Tracks are described before their events, interned texts before
their use and after the state was cleared; slices of a track begin and end in turn and nest; flows have two ends; and
every figure is that of the views."""

import collections
import os
import sqlite3
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from export_databases import Case, recording, unknown_fields  # noqa: E402

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4
CLEARED, NEEDS = 1, 2
COUNTERS = ("allocated", "active", "reserved", "requested")
GPU_DOMAINS = ("block", "device", "managed", "pinned")


class Event:
    """A track event with its interned texts; a slice has an end."""

    def __init__(self, begin, event, interned):
        self.track, self.begin, self.end = event.track_uuid, begin, None
        self.name = interned["name"][event.name_iid]
        (self.category,) = (interned["category"][iid] for iid in event.category_iids)
        self.flows = list(event.flow_ids) + list(event.terminating_flow_ids)
        self.location = None
        if event.HasField("source_location_iid"):
            self.location = interned["location"][event.source_location_iid]
        self.arguments = {}
        for one in event.debug_annotations:
            field = [field.name for field, _ in one.ListFields() if field.name != "name_iid"]
            assert len(field) == 1, field
            self.arguments[interned["argument"][one.name_iid]] = getattr(one, field[0])


class Timeline:
    """A trace, checked while it is read."""

    def __init__(self, test, trace):
        self.test, self.tracks, self.slices, self.instants = test, {}, [], []
        self.counts = collections.defaultdict(list)
        self.interned = {"name": {}, "category": {}, "argument": {}, "location": {}}
        self.open, self.last, self.flows = collections.defaultdict(list), {}, collections.defaultdict(list)
        for number, packet in enumerate(trace.packet):
            test.assertNotEqual(packet.trusted_packet_sequence_id, 0)
            test.assertEqual(packet.sequence_flags, NEEDS if number else CLEARED)
            test.assertEqual(packet.first_packet_on_sequence, number == 0)
            self.intern(packet.interned_data)
            if packet.HasField("track_descriptor"):
                self.add_track(packet.track_descriptor)
            elif packet.HasField("track_event"):
                self.add_event(packet.timestamp, packet.track_event)
            else:
                test.assertTrue(packet.HasField("clock_snapshot") and number == 0)
        test.assertEqual([track for track, slices in self.open.items() if slices], [], "slices without an end")
        for flow, ends in self.flows.items():
            test.assertGreater(len(ends), 1, f"flow {flow} joins nothing: {ends}")

    def intern(self, data):
        for kind, items in (("name", data.event_names), ("category", data.event_categories),
                            ("argument", data.debug_annotation_names)):
            for item in items:
                self.test.assertNotIn(item.iid, {0, *self.interned[kind]}, "interned twice")
                self.interned[kind][item.iid] = item.name
        for item in data.source_locations:
            self.test.assertNotIn(item.iid, {0, *self.interned["location"]})
            self.interned["location"][item.iid] = (item.function_name, item.file_name, item.line_number)

    def add_track(self, track):
        self.test.assertNotIn(track.uuid, {0, *self.tracks})
        if track.HasField("parent_uuid"):
            self.test.assertIn(track.parent_uuid, self.tracks)
        self.tracks[track.uuid] = track

    def add_event(self, ns, event):
        test, track = self.test, event.track_uuid
        test.assertIn(track, self.tracks, "an event before its track")
        test.assertEqual(event.type == COUNTER, self.tracks[track].HasField("counter"))
        if event.type == INSTANT:
            self.instants.append(Event(ns, event, self.interned))
            self.join(self.instants[-1])
            return
        test.assertGreaterEqual(ns, self.last.get(track, 0), "a track that goes back in time")
        self.last[track] = ns
        if event.type == COUNTER:
            test.assertEqual(self.tracks[track].counter.unit, 3, "bytes")
            self.counts[track].append((ns, event.counter_value))
        elif event.type == BEGIN:
            one = Event(ns, event, self.interned)
            self.open[track].append(one)
            self.slices.append(one)
            self.join(one)
        else:
            test.assertEqual(event.type, END)
            test.assertTrue(self.open[track], "an end without a beginning")
            self.open[track].pop().end = ns

    def join(self, one):
        for flow in one.flows:
            self.flows[flow].append((one.begin, one.name))

    def process_of(self, track):
        while not track.HasField("process"):
            track = self.tracks[track.parent_uuid]
        return track.process

    def of(self, category):
        return [one for one in self.slices if one.category == category]

    def instants_of(self, category):
        return [one for one in self.instants if one.category == category]


class Perfetto(Case):
    def timeline(self, *options):
        module = self.protobuf("perfetto")
        data, self.said = self.export("perfetto", *options)
        trace = module.Trace()
        trace.ParseFromString(data)
        self.assertEqual(unknown_fields(trace), 0)
        timeline = Timeline(self, trace)
        self.open()
        self.assert_clock(trace.packet[0].clock_snapshot)
        return timeline

    def assert_clock(self, snapshot):
        real = self.one("SELECT coalesce(max(CAST(value AS INTEGER)), 0) FROM meta WHERE key = 'start_real_ns'")
        clocks = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
        self.assertEqual(clocks, {6: 0, 1: real} if real else {6: 0})

    def assert_counters(self, timeline, where="1"):
        """Of each process and domain the rows of timeline_process, in their order; of each process those of rss. The
        highest of what was allocated is the peak."""
        expected = collections.defaultdict(list)
        for pid, start, domain, device, ns, *values in self.sql(
                "SELECT p.pid, coalesce(p.start_ns, 0), t.domain, t.device, t.ts_ns, t.allocated, t.active, t.reserved,"
                " t.requested"
                f" FROM timeline_process t JOIN process p ON p.id = t.process_id WHERE {where} ORDER BY t.process_id,"
                " t.domain, t.device, t.seq"):
            name = f"{domain}, GPU {device}" if domain in GPU_DOMAINS else domain
            for counter, value in zip(COUNTERS, values):
                if value is not None and (counter == "allocated" or domain == "block"):
                    expected[pid, max(start, 0), f"{name}: {counter}"].append((ns, value))
        for pid, start, ns, value in self.sql("SELECT p.pid, coalesce(p.start_ns, 0), r.ts_ns, r.rss_bytes FROM rss r"
                                              " JOIN process p ON p.id = r.process_id ORDER BY r.process_id, r.ts_ns"):
            expected[pid, max(start, 0), "resident memory"].append((ns, value))
        found = {}
        for track, counts in timeline.counts.items():
            process = timeline.process_of(timeline.tracks[track])
            key = process.pid, process.start_timestamp_ns, timeline.tracks[track].name
            self.assertNotIn(key, found, "two tracks of one counter")
            found[key] = counts
        self.assertEqual(found, dict(expected))
        for pid, start, domain, device, peak in self.sql(
                "SELECT p.pid, coalesce(p.start_ns, 0), t.domain, t.device, t.peak_bytes FROM total_process t"
                f" JOIN process p ON p.id = t.process_id WHERE t.peak_bytes > 0 AND {where}"):
            name = f"{domain}, GPU {device}" if domain in GPU_DOMAINS else domain
            self.assertEqual(max(value for _, value in found[pid, max(start, 0), f"{name}: allocated"]), peak)

    def assert_segments(self, timeline):
        end = self.one("SELECT end_ns FROM recording")
        rows = self.sql("SELECT id, addr, size, pool, alloc_ns, free_ns, device, stream FROM segment ORDER BY id")
        found = sorted((one.arguments["segment"], one.arguments["addr"], one.arguments["size"], one.arguments["pool"],
                        one.begin, one.end)
                       for one in timeline.of("segment"))
        self.assertEqual(found, [(*row[:5], max(end if row[5] is None else row[5], row[4])) for row in rows])
        names = {row[0]: f"GPU {row[6]}, stream {row[7]}: segments" for row in rows}
        for one in timeline.of("segment"):
            self.assertEqual(timeline.tracks[one.track].name, names[one.arguments["segment"]])
        # No more tracks than segments were there at a time, on each stream.
        tracks = collections.Counter(timeline.tracks[track].name
                                     for track in {one.track for one in timeline.of("segment")})
        for name, count in tracks.items():
            edges = sorted([(row[4], 1) for row in rows if names[row[0]] == name] +
                           [(end + 1 if row[5] is None else row[5], -1) for row in rows if names[row[0]] == name])
            most = now = 0
            for _, step in edges:
                now += step
                most = max(most, now)
            self.assertLessEqual(count, most)
        # From its allocation to its release, in the order of time; the instants are on the threads that did it.
        for row in rows:
            ends = sorted(timeline.flows[row[0]])
            self.assertEqual([name for _, name in ends if not name.startswith("segment ")],
                             ["segment_alloc"] + (["segment_free"] if row[5] is not None else []))
            self.assertEqual(ends[0][0], row[4])
        return len(rows)

    def assert_blocks(self, timeline, limit):
        end = self.one("SELECT end_ns FROM recording")
        rows = self.sql("SELECT id, segment_id, addr, size, requested, alloc_ns, coalesce(free_ns, ?) FROM allocation"
                        " WHERE domain = 4 ORDER BY size DESC, id LIMIT ?", end, limit)
        found = sorted(tuple(one.arguments[name] for name in ("allocation", "segment", "addr", "size", "requested")) +
                       (one.begin, one.end) for one in timeline.of("block"))
        self.assertEqual(found, sorted((*row[:6], max(row[5], row[6])) for row in rows))
        return len(rows)

    # ---- recordings ----

    def test_heap(self):
        self.heap()
        timeline = self.timeline()
        self.assertEqual(self.said, "")
        self.assert_counters(timeline)
        self.assertGreater(len(timeline.counts), 6)
        self.assertEqual(timeline.slices, [])
        processes = [(track.process.pid, track.process.process_name) for track in timeline.tracks.values()
                     if track.HasField("process")]
        self.assertEqual(processes, self.sql("SELECT pid, coalesce(command_line, executable, 'process') FROM process"
                                             " ORDER BY id"))
        threads = [(track.thread.pid, track.thread.tid) for track in timeline.tracks.values()
                   if track.HasField("thread")]
        self.assertEqual(threads, self.sql("SELECT pid, tid FROM thread ORDER BY id"))

    def test_peak_between_rows(self):
        """A program so long that most of its events are in no row: the peak is in the counter, and the curve of
        timeline, all the same."""
        self.record(recording.program("churn"), "--ops", "20000", options=["--heap", "--quiet"])
        timeline = self.timeline()
        self.assert_counters(timeline)
        self.assertGreater(self.one("SELECT count(*) FROM timeline_process WHERE allocated_max > allocated"), 100)

    def test_part(self):
        self.heap()
        self.open()
        (pid, process_id), = self.sql("SELECT pid, process_id FROM total_process WHERE domain = 'heap' ORDER BY"
                                      " peak_bytes DESC LIMIT 1")
        timeline = self.timeline("--pid", str(pid), "--domain", "heap")
        names = {timeline.tracks[track].name for track in timeline.counts}
        self.assertEqual(names - {"resident memory"}, {"heap: allocated"})
        self.assertEqual({track.process.pid for track in timeline.tracks.values() if track.HasField("process")}, {pid})

    def test_marks(self):
        self.marks()
        timeline = self.timeline()
        marks = sorted((one.name, one.begin, one.end) for one in timeline.of("mark"))
        end = self.one("SELECT end_ns FROM recording")
        self.assertEqual(marks, sorted((name, begin, end if last is None else last) for name, begin, last in
                                       self.sql("SELECT name, begin_ns, end_ns FROM mark")))
        self.assertGreater(len(marks), 8)

    def test_driver_calls(self):
        self.cuda()
        timeline = self.timeline()
        self.assert_counters(timeline)
        rows = self.sql("SELECT e.ts_ns - e.requested, e.ts_ns, c.text, e.size FROM device_event d JOIN event e ON"
                        " e.seq = d.seq"
                        " JOIN event_cause c ON c.code = e.cause WHERE (d.kind BETWEEN 37 AND 48 OR d.kind BETWEEN 54"
                        " AND 56) AND e.requested > 0")
        found = sorted((one.begin, one.end, one.name, one.arguments["size"]) for one in timeline.of("driver"))
        self.assertEqual(found, sorted((begin, end, name, size or 0) for begin, end, name, size in rows))
        self.assertGreater(len(found), 20)
        failed = [one for one in timeline.of("driver") if "CUresult" in one.arguments]
        self.assertEqual(len(failed), self.one(
            "SELECT count(*) FROM device_event d JOIN event e ON e.seq = d.seq WHERE (d.kind BETWEEN 37 AND 48 OR"
            " d.kind BETWEEN 54 AND 56) AND e.requested > 0 AND e.flags & 1"))
        self.assertIn(("cuMemFree",), {(one.name,) for one in timeline.instants_of("driver")})

    # ---- caching allocators ----

    def test_snapshot(self):
        self.snapshot("multistream_record")
        timeline = self.timeline("--blocks", "100000")
        self.assertEqual(self.said, "")
        self.assert_counters(timeline)
        self.assertGreater(self.assert_segments(timeline), 50)
        self.assertGreater(self.assert_blocks(timeline, 100000), 1000)

    def test_limited_blocks(self):
        self.snapshot("multistream_record")
        timeline = self.timeline("--blocks", "17")
        self.assertIn("the largest 17 are drawn", self.said)
        self.assertEqual(self.assert_blocks(timeline, 17), 17)
        self.assertEqual(self.timeline("--blocks", "0").of("block"), [])

    def test_driver_call_to_segment(self):
        """A call of the driver belongs to the segment that is the next thing at its address."""
        self.snapshot("multistream_record")
        segments = self.open().execute("SELECT id, addr, alloc_seq, alloc_ns, process_id FROM segment ORDER BY id"
                                       " LIMIT 5").fetchall()
        thread = self.one("SELECT min(id) FROM thread")
        self.connection.close()
        with sqlite3.connect(self.path) as connection:
            for number, (_, addr, _, ns, _) in enumerate(segments):
                for late in (0, 1):  # the first of two calls at an address got something else
                    seq = -100 + 2 * number + late
                    connection.execute(
                        "INSERT INTO event_row(seq, ts_ns, kind, cause, addr, size, padding, flags, thread_id,"
                        " device) SELECT ?, ?, 37, min(code),"
                        " ?, 512, 512 - 1, 0, ?, 0 FROM event_cause WHERE text = 'cuMemAlloc'", (seq, ns, addr, thread))
                    connection.execute("INSERT INTO device_event VALUES (?, 37)", (seq,))
        connection.close()
        timeline = self.timeline()
        calls = [one for one in timeline.of("driver") if one.flows]
        self.assertEqual(sorted(flow for one in calls for flow in one.flows), [row[0] for row in segments])
        self.assertEqual(len(timeline.of("driver")), 2 * len(segments))
        for one in calls:
            self.assertIn((one.flows[0], one.arguments["addr"]), [row[:2] for row in segments])

    def test_out_of_memory(self):
        """Less memory than it was recorded with: chains of stages, those that failed and those that did not."""
        self.snapshot("synthetic_oom_gc", "--memory-limit", "300M")
        timeline = self.timeline()
        self.assert_segments(timeline)
        found = [(one.begin, one.name, one.arguments["bytes asked"]) for one in timeline.instants_of("oom")]
        self.assertEqual(found, self.sql(
            "SELECT ts_ns, iif(kind = 'oom', 'out of memory', 'oom_retry: ' || cause), size FROM events WHERE kind IN"
            " ('oom', 'oom_retry') ORDER BY thread_id, seq"))
        # A chain ends with success or with the request's failure.
        chains, chain = [], []
        for kind, asked, succeeded in self.sql("SELECT kind, size, arg FROM events WHERE kind IN ('oom', 'oom_retry')"
                                               " ORDER BY seq"):
            chain.append(asked)
            if kind == "oom" or succeeded == 1:
                chains.append(chain)
                chain = []
        sizes = collections.Counter(len(chain) for chain in chains if len(chain) > 1)
        flows = collections.Counter(len(ends) for ends in timeline.flows.values()
                                    if ends[0][1].startswith(("oom", "out of")))
        self.assertEqual(flows, sizes)
        self.assertGreater(sum(sizes.values()), 100)

    # ---- what a database may lack, or hold ----

    def test_hostile_names(self):
        self.hostile()
        timeline = self.timeline()
        self.assert_counters(timeline)
        for track in timeline.tracks.values():
            for text in (track.name, track.process.process_name, track.thread.thread_name):
                self.assertFalse(any(character < " " for character in text))
                self.assertLessEqual(len(text), 500)

    def test_less_is_kept(self):
        for keep in ("totals", "allocations"):
            self.bare(keep, "--force")
            self.assert_counters(self.timeline())
            self.assertIn("the timeline lacks", self.said)


if __name__ == "__main__":
    recording.main()
