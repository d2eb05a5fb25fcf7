#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""The CUDA recorder without a GPU: programs that reach a fake driver in every way, recorded, and each record compared
with what the driver wrote down of the call. The programs check themselves that they are answered as without a
recorder."""

import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

import recording  # noqa: E402

FAKE = os.path.join(recording.PROGRAMS, "cuda_fake")
OPTIONS = ("--cuda", "--stacks", "none", "--quiet")
PINNED, DEVICE, ARRAY, MANAGED = 2, 3, 4, 5
OUT_OF_MEMORY, NO_CONTEXT, NOT_INITIALIZED, DEINITIALIZED = 2, 201, 3, 4

# By the names of functions without what follows their version.
ALLOCS = {
    "cuMemAlloc": DEVICE, "cuMemAllocPitch": DEVICE, "cuMemAllocManaged": MANAGED, "cuMemAllocHost": PINNED,
    "cuMemHostAlloc": PINNED, "cuMemHostRegister": PINNED, "cuArrayCreate": ARRAY, "cuArray3DCreate": ARRAY,
    "cuMipmappedArrayCreate": ARRAY, "cuIpcOpenMemHandle": DEVICE,
}
FREES = {
    "cuMemFree": DEVICE, "cuMemFreeHost": PINNED, "cuMemHostUnregister": PINNED, "cuArrayDestroy": ARRAY,
    "cuMipmappedArrayDestroy": ARRAY, "cuIpcCloseMemHandle": DEVICE,
}
VIRTUAL = {
    "cuMemAddressReserve": "vmm_reserve", "cuMemCreate": "vmm_create", "cuMemMap": "vmm_map",
    "cuMemSetAccess": "vmm_set_access", "cuMemRetainAllocationHandle": "vmm_create",
    "cuMemImportFromShareableHandle": "vmm_create",
}
VIRTUAL_FREES = {"cuMemAddressFree": "vmm_address_free", "cuMemRelease": "vmm_release", "cuMemUnmap": "vmm_unmap"}
ORDERED = ("cuMemAllocAsync", "cuMemAllocFromPoolAsync")
SYNCS = ("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize")
POOLS = ("cuMemPoolCreate", "cuMemPoolDestroy", "cuMemPoolTrimTo", "cuMemPoolSetAttribute")
# What arrays come to, in the order of the scenario: the driver does not know of bytes.
ARRAY_BYTES = (64 * 32 * 2 * 4, 16 * 8 * 4 * 4, (16 * 8 * 4 + 8 * 4 * 2 + 4 * 2 * 1) * 4, 2989 * 32 * 2 * 4)
# What the collector knows better than a call that gives something back, from what had given it out: places of
# records().
COMPLETED = {"dev_free": (3, 4, 5, 7, 9), "dev_free_async": (3, 4, 5, 7), "vmm_release": (7,), "vmm_create": (7,),
             "vmm_unmap": (3,), "end of a free": (3, 9)}
BESIDE = ("process_start", "process_exit", "main_end", "thread_start", "device", "device_name", "stream", "dev_memory")


class Line:
    """A call as the driver wrote it down."""

    def __init__(self, text):
        pid, depth, self.name, result, *rest = text.split()
        self.pid, self.depth, self.result = int(pid), int(depth), int(result)
        self.values = {key: int(value, 0) for key, _, value in (word.partition("=") for word in rest) if value}

    def get(self, key):
        return self.values.get(key, 0)


class Expected:
    """What the recorder should have reported of a process' calls, in order: (kind, cause, flags, device, memory,
    number, addr, size, arg, stream)."""

    def __init__(self, rename=None):
        self.records, self.contexts, self.pools = [], {}, {}
        self.context_count, self.works, self.arrays = 0, False, list(ARRAY_BYTES)
        self.rename = rename or {}

    def place(self, line):
        """Device and number of the context, as far as the driver can be asked."""
        context = line.get("context")
        if not self.works or line.result in (NO_CONTEXT, NOT_INITIALIZED, DEINITIALIZED) or not context:
            return 0, 0
        if context not in self.contexts:
            self.context_count += 1
            self.contexts[context] = (self.context_count, line.get("device"))
        return line.get("device"), self.contexts[context][0]

    def expect(self, kind, cause, line, memory=0, addr=0, size=0, arg=0, stream=0, number=None, device=None,
               result=None):
        result = line.result if result is None else result
        current, context = self.place(line) if number is None or device is None or device < 0 else (0, 0)
        device = current if device is None or device < 0 else device
        cause = self.rename.get(cause, cause)
        self.records.append((kind, cause, 1 if result else 0, device, memory, context if number is None else number,
                             addr, size, result or arg, 0 if stream == 1 else stream))

    def alloc(self, line, kind, cause, memory, size, **more):
        if line.result == OUT_OF_MEMORY:
            kind = "dev_oom"
        self.expect(kind, cause, line, memory, 0 if line.result else line.get("addr"), size, **more)

    def free(self, line, kind, cause, memory, **more):
        """Before the call, again if it failed, and how long it took."""
        free = dict(more, addr=line.get("addr"), size=line.get("bytes"), arg=line.get("handle"))
        self.expect(kind, cause, line, memory, result=0, **free)
        if line.result:
            self.expect(kind, cause, line, memory, **free)
        self.expect("dev_sync", cause, line, memory, **more)

    def take(self, line):
        name, self.works = re.sub("_(v2|ptsz)$", "", line.name), self.works or line.result == 0
        if name in ALLOCS:
            memory = ALLOCS[name]
            size = self.arrays.pop(0) if memory == ARRAY else line.get("bytes")
            size = line.get("asked") if name == "cuMemAllocPitch" and line.result else size
            self.alloc(line, "dev_alloc", name, memory, 0 if name == "cuIpcOpenMemHandle" else size)
        elif name in FREES:
            if line.get("addr"):
                self.free(line, "dev_free", name, FREES[name])
        elif name in VIRTUAL or name in VIRTUAL_FREES:
            self.take_virtual(name, line)
        elif name in ORDERED or name == "cuMemFreeAsync" or name in POOLS:
            self.take_ordered(name, line)
        elif name in SYNCS:
            self.expect("dev_sync", name, line, addr=0 if line.result else line.get("addr"), stream=line.get("stream"))
        else:
            self.take_end(name, line)

    def take_virtual(self, name, line):
        device = line.values.get("place")
        memory = PINNED if device == -1 else DEVICE
        if name in VIRTUAL_FREES:
            self.free(line, VIRTUAL_FREES[name], name, memory, device=device)
        elif name == "cuMemCreate":
            self.alloc(line, VIRTUAL[name], name, memory, line.get("bytes"), device=device, arg=line.get("handle"))
        else:
            addr = line.get("addr") if not line.result or name != "cuMemAddressReserve" else 0
            self.expect(VIRTUAL[name], name, line, memory, addr, line.get("bytes"),
                        line.get("count") or line.get("handle"), device=device)

    def take_ordered(self, name, line):
        pool = line.get("pool")
        if name == "cuMemPoolCreate" and not line.result:
            self.pools[pool] = len(self.pools) + 1
        where = {"number": self.pools.get(pool, 0), "device": line.get("place")}
        if name in ORDERED:
            self.alloc(line, "dev_alloc_async", "graph" if line.get("captured") else name, DEVICE, line.get("bytes"),
                       stream=line.get("stream"), **where)
        elif name == "cuMemFreeAsync":
            self.free(line, "dev_free_async", name, DEVICE, device=line.get("place"), stream=line.get("stream"))
        else:
            self.expect("dev_pool", name, line, DEVICE, line.get("addr"), arg=line.get("arg"), **where)

    def take_end(self, name, line):
        """Ends of contexts."""
        device, context = line.get("device"), line.get("context")
        if name == "cuCtxDestroy":
            if context not in self.contexts:
                self.context_count += 1
                self.contexts[context] = (self.context_count, 0)
            number, device = self.contexts.pop(context)
            self.expect("dev_reset", name, line, number=number, device=device)
        elif name == "cuDevicePrimaryCtxReset" or (name == "cuDevicePrimaryCtxRelease" and not line.get("active")):
            self.expect("dev_reset", name, line, number=0, device=device)
            self.contexts = {key: value for key, value in self.contexts.items() if value[1] != device}


class CudaCase(recording.Case):
    def setUp(self):
        super().setUp()
        if not os.path.exists(os.path.join(FAKE, "libcuda.so.1")):
            self.skipTest("the fake driver is not built")
        self.log = os.path.join(self.folder, "calls")

    def environment(self, **more):
        return dict(os.environ, LD_LIBRARY_PATH=FAKE, FAKE_CUDA_LOG=self.log, **more)

    def record_program(self, *command, options=OPTIONS, **more):
        if os.path.exists(self.log):
            os.unlink(self.log)
        outcome = self.record(*command, options=(*options, "--force"), env=self.environment(**more))
        self.assert_finished()
        self.assert_no_loss()
        return outcome

    def calls(self):
        with open(self.log, encoding="utf-8") as stream:
            return [Line(text) for text in stream]

    def records(self, pid):
        streams = dict(self.sql("SELECT number, handle FROM stream s JOIN process p ON p.id = s.process_id WHERE"
                                " p.pid = ?", pid))
        rows = self.sql("SELECT kind, cause, flags, device, pool, addr, size, arg, stream FROM events WHERE pid = ?"
                        f" AND kind NOT IN ({', '.join('?' * len(BESIDE))}) ORDER BY seq", pid, *BESIDE)
        return [(kind, cause, flags & 1, device, pool >> 12, pool & 4095, addr or 0, size or 0, arg or 0,
                 streams[stream] if stream else 0) for kind, cause, flags, device, pool, addr, size, arg, stream
                in rows]

    def assert_reported(self, pid, rename=None):
        """Every call of the program, once, as the driver saw it."""
        expected = Expected(rename)
        for line in self.calls():
            if line.pid == pid and line.depth == 0 and line.name.startswith("cu"):
                expected.take(line)
        reported = self.records(pid)
        for number, (wanted, found) in enumerate(zip(expected.records, reported)):
            is_end = found[0] == "dev_sync" and "Synchronize" not in found[1]
            left_out = COMPLETED.get("end of a free" if is_end else found[0], ())
            found, wanted = ([value for index, value in enumerate(record) if index not in left_out]
                             for record in (found, wanted))
            self.assertEqual(found, wanted, f"record {number} of process {pid}")
        self.assertEqual(len(reported), len(expected.records))
        self.assertGreater(len(reported), 0)

    def pids(self):
        return sorted({line.pid for line in self.calls()})


class EntryPoints(CudaCase):
    """The whole scenario in each way to the driver."""

    def way(self, *command):
        outcome = self.record_program(*command)
        (pid,) = self.pids()
        self.assert_reported(pid)
        self.assertEqual(self.sql("SELECT total_bytes FROM device WHERE id IN (0, 1)"), [(80 << 30,)] * 2)
        self.assertEqual(self.count("device"), 2)
        self.assertGreaterEqual(self.count("dev_memory"), 3, "one at first, and one for each device that ran short")
        self.assertEqual(self.count("dev_memory", "size <> ? OR requested <> ? OR cause <> 'cuMemGetInfo'", 80 << 30,
                                    40 << 30), 0)
        self.assertEqual(self.count("dev_alloc", "requested <= 0"), 0, "calls take time")
        plain = recording.run(command, env=self.environment())
        self.assertEqual((plain.returncode, plain.out, plain.err), (0, outcome.out, ""))

    def test_linked(self):
        self.way(recording.program("cuda_linked"))
        with open(os.path.join(recording.ROOT, "trace/recorder/cuda/cuda_hooks.h"), encoding="utf-8") as stream:
            hooked = set(re.findall(r"^    X\((cu[A-Z]\w+)", stream.read(), re.M))
        not_called = {name for name in hooked if "_ptsz" not in name} - {line.name for line in self.calls()}
        self.assertEqual(not_called, {"cuGetProcAddress", "cuGetProcAddress_v2", "cuMemGetAddressRange_v2",
                                      "cuIpcGetMemHandle"}, "the scenario leaves out what is not reported")

    def test_own_streams(self):
        self.way(recording.program("cuda_linked"), "own")

    def test_ways_to_look_up(self):
        for way in ("handle", "default", "next", "program", "address", "address_v2"):
            with self.subTest(way=way):
                self.way(recording.program("cuda_lookup_ways"), way)


class Unchanged(CudaCase):
    """What a recorder must not change."""

    def test_no_driver(self):
        for options in (OPTIONS, ("--heap", "--stacks", "none", "--quiet")):
            outcome = self.record(recording.program("cuda_lookup_ways"), "absent", options=(*options, "--force"))
            self.assertIn("undefined symbol: cuMemAlloc_v2", outcome.out)

    def test_strange_questions(self):
        self.record_program(recording.program("cuda_lookup_ways"), "strange")
        self.assertEqual(self.count("dev_alloc"), 0)

    def test_not_wanted(self):
        """With the heap alone nothing of CUDA is reported, and the driver's own functions are handed out."""
        self.record_program(recording.program("cuda_linked"), options=("--heap", "--stacks", "none", "--quiet"))
        self.assertEqual(self.one("SELECT count(*) FROM event WHERE kind BETWEEN 37 AND 63 AND kind NOT IN (49, 50,"
                                  " 51, 52, 53)"),
                         0)
        self.assertEqual([line for line in self.calls() if line.name.startswith("?cuCtx")], [])

    def test_with_heap(self):
        self.record_program(recording.program("cuda_linked"), options=("--heap", *OPTIONS))
        self.assertEqual(self.count("dev_alloc", "size = 12000"), 1)
        self.assertGreater(self.count("heap_alloc"), 0)

    def test_front(self):
        """Another library in front of the driver, behind us and before us: it is asked once for each allocation, and
        its sizes are the driver's."""
        front = recording.program("lib_cuda_front.so")
        command = ["/bin/sh", "-c", f'LD_PRELOAD="$LD_PRELOAD:{front}" exec {recording.program("cuda_linked")}']
        before = ["/bin/sh", "-c", f'LD_PRELOAD="{front}:$LD_PRELOAD" exec {recording.program("cuda_linked")}']
        for order in (command, before):
            outcome = self.record_program(*order)
            (pid,) = self.pids()
            driver = [line for line in self.calls() if line.name == "cuMemAlloc_v2" and line.depth == 0]
            reported = self.sql("SELECT size FROM events WHERE pid = ? AND cause = 'cuMemAlloc' AND kind IN"
                                " ('dev_alloc', 'dev_oom')"
                            " ORDER BY seq", pid)
            extra = 0 if order is before else 256 # of what is reported less than the driver was asked for
            sizes = [line.get("bytes") for line in driver]
            self.assertEqual([size for (size,) in reported], [size - extra if size > 10000 else size for size in sizes])
            self.assertIn(f"front: {len(driver)}\n", outcome.err)


class Runtime(CudaCase):
    """Through the runtime library the records carry its functions' names."""

    NAMES = {"cuMemAlloc": "cudaMalloc", "cuMemFree": "cudaFree", "cuMemHostAlloc": "cudaMallocHost",
             "cuMemFreeHost": "cudaFreeHost", "cuMemAllocFromPoolAsync": "cudaMallocAsync",
             "cuMemFreeAsync": "cudaFreeAsync", "cuMemAllocManaged": "cudaMallocManaged",
             "cuCtxSynchronize": "cudaDeviceSynchronize", "cuDevicePrimaryCtxReset": "cudaDeviceReset"}

    def test_linked(self):
        self.record_program(recording.program("cuda_runtime_user"))
        (pid,) = self.pids()
        self.assert_reported(pid, self.NAMES)

    def test_local(self):
        """Libraries that only a plug-in sees; it uses the driver beside the runtime library."""
        self.record_program(recording.program("cuda_runtime_user"), recording.program("lib_cuda_plugin.so"),
                            options=("--cuda", "--stacks", "native", "--quiet"))
        self.assertEqual(self.count("dev_alloc", "cause = 'cudaMalloc'"), 3)
        self.assertEqual(self.sql("SELECT cause, kind FROM events WHERE size = 22000 AND kind = 'dev_alloc'"),
                         [("cuMemAlloc", "dev_alloc")])
        for size in (20000, 20500):
            callsite = self.one("SELECT callsite_id FROM events WHERE kind = 'dev_alloc' AND size = ?", size)
            functions = [row[0] for row in self.sql("SELECT function FROM frame WHERE callsite_id = ? ORDER BY depth",
                                                    callsite)]
            self.assertEqual(functions[:3], ["runtime_calls", "plugin_run", "main"])

    def test_asks_its_own_libraries_first(self):
        """RTLD_DEEPBIND: the runtime library finds the driver by the C library's dlsym, so records have the driver's
        names. The function of the driver that the plug-in links itself is the driver's, which nobody sees."""
        plugin = recording.program("lib_cuda_plugin.so")
        run = f"import ctypes, os; print(ctypes.CDLL({plugin!r}, os.%s).plugin_run())"
        calls = "SELECT kind, size FROM events WHERE kind LIKE 'dev_%' AND kind <> 'dev_memory' ORDER BY seq"
        options = ("--cuda", "--stacks", "none", "--quiet", "--force")
        self.record_program(sys.executable, "-c", run % "RTLD_NOW", options=options)
        local = self.sql(calls)
        outcome = self.record_program(sys.executable, "-c", run % "RTLD_DEEPBIND | os.RTLD_NOW", options=options)
        self.assertEqual(outcome.out, "0\n")
        self.assertEqual(self.sql(calls), local[:local.index(("dev_alloc", 22000))])
        self.assertEqual(self.sql("SELECT DISTINCT cause FROM events WHERE kind = 'dev_alloc' AND size = 20000"),
                         [("cuMemAlloc",)])



class Lives(CudaCase):
    def test_fork(self):
        """The child's calls fail, as they do without us; we ask its dead driver nothing."""
        self.record_program(recording.program("cuda_linked"), "fork")
        lines = self.calls()
        parent = lines[0].pid
        (child,) = set(self.pids()) - {parent}
        self.assert_reported(parent)
        self.assert_reported(child)
        self.assertEqual([line.name for line in lines if line.pid == child and line.name.startswith("?")], [])

    def test_late(self):
        """After the driver's end and ours."""
        self.record_program(recording.program("cuda_linked"), "late")
        self.assertEqual(self.sql("SELECT kind, arg FROM events WHERE flags & 1 AND kind <> 'dev_sync' ORDER BY seq"),
                         [("dev_free", DEINITIALIZED), ("dev_alloc", DEINITIALIZED)])
        self.assertEqual(self.count("dev_alloc", "flags = 0"), 1)

    def test_threads(self):
        self.record_program(recording.program("cuda_linked"), "threads")
        calls = self.calls()
        self.assertEqual(self.count("dev_alloc"), sum(line.name == "cuMemAlloc_v2" for line in calls))
        self.assertEqual(self.count("dev_free"), sum(line.name == "cuMemFree_v2" for line in calls))
        self.assertEqual(self.count("device"), 2)
        self.assertEqual({row[0] for row in self.sql("SELECT DISTINCT pool FROM events WHERE kind = 'dev_alloc'")},
                         {(DEVICE << 12) + 1, (DEVICE << 12) + 2})
        # no address is given out before the record that gave it back
        self.assertEqual(self.one("SELECT count(*) FROM leak WHERE domain = 'device'"), 4 * 8)


class Replaced(CudaCase):
    def replaced(self, said, library, *options, **more):
        outcome = self.record_program(recording.program("cuda_lookup_ways"), "replaced",
                                      options=("--cuda=replace", "--quiet", *options), VARVE_REPLACE=library, **more)
        self.assertEqual(outcome.out, said)
        return outcome

    def test_served(self):
        outcome = self.replaced("1 32000 33000 801 0\n", recording.program("lib_cuda_fake_replace.so"),
                                *recording.PLAIN)
        self.assertIn("replaced: 2 1 1\n", outcome.err)
        self.assertEqual(self.sql("SELECT cause, size FROM events WHERE kind = 'dev_alloc' AND flags = 0 ORDER BY seq"),
                         [("cuMemAlloc", 1 << 20), ("cuMemAllocManaged", 33000)])
        self.assertEqual(self.count("dev_free", "flags = 0"), 2, "of managed memory, and one that fails")

    def test_served_by_varve(self):
        """Its blocks have the program's call site, though it is the recorder that calls the allocator."""
        self.replaced("1 32000 33000 801 0\n", os.path.join(os.path.dirname(recording.VARVE), "libvarve-replace.so"),
                      VARVE_REPLACE_DEVICE="host")
        self.assertEqual(self.sql("SELECT requested, EXISTS (SELECT 1 FROM frame f WHERE f.callsite_id = a.callsite_id"
                                  " AND f.function = 'main') FROM allocations a WHERE domain = 'block'"
                                  " ORDER BY alloc_seq"),
                         [(31000, 1), (32000, 1)])

    def test_not_to_be_opened(self):
        for library in (recording.program("lib_cuda_front.so"), os.path.join(FAKE, "libcudart.so.12")):
            outcome = self.replaced("1 32000 33000 0 0\n", library, *recording.PLAIN)
            self.assertEqual(outcome.err.count("varve: cudaMalloc is served by the driver"), 1)
            self.assertEqual(self.count("dev_alloc", "flags = 0"), 3)


if __name__ == "__main__":
    recording.main()
