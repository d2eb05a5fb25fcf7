#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s
"""The Python side of `varve record --torch`: PyTorch's questions about its memory, answered from varve's allocator."""

import ctypes
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
from torch_shim import FAKE, FAKE_LIBRARY, LIBRARY, SHIM, OnVarve  # noqa: E402

sys.path.insert(0, SHIM)
from varve_torch import native_library, snapshot_tables  # noqa: E402

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
STRUCTURES = {"Block": "block", "Segment": "segment", "Event": "event", "Snapshot": "snapshot", "Settings": "settings"}


@unittest.skipIf(COMPILER is None, "no C compiler")
class Declarations(recording.Case):
    """Python's declarations are those of the header."""

    def test_structures(self):
        expected, lines = {}, []
        for name, tag in STRUCTURES.items():
            structure = getattr(native_library, name)
            for field, _ in structure._fields_:
                declared = getattr(structure, field)
                expected[f"{tag}.{field}"] = [declared.offset, declared.size]
                lines.append(f'printf("\\"{tag}.{field}\\": [%zu, %zu], ", offsetof(struct varve_torch_{tag}, {field}),'
                             f' sizeof(((struct varve_torch_{tag} *)0)->{field}));')
            expected[tag] = ctypes.sizeof(structure)
            lines.append(f'printf("\\"{tag}\\": %zu, ", sizeof(struct varve_torch_{tag}));')
        expected["version"] = native_library.INTERFACE_VERSION
        lines.append('printf("\\"version\\": %d}", VARVE_TORCH_INTERFACE_VERSION);')
        source = os.path.join(self.folder, "layout.c")
        with open(source, "w", encoding="utf-8") as stream:
            stream.write('#include <stdio.h>\n#include "alloc/frontend/torch.h"\nint'
                         ' main(void)\n{\nputchar(123);\n'
                         + "\n".join(lines) + "\nreturn 0;\n}\n")
        program = os.path.join(self.folder, "layout")
        subprocess.run([COMPILER, "-I", recording.ROOT, "-o", program, source], check=True)
        self.assertEqual(json.loads(recording.run([program]).out), expected)

    def test_functions(self):
        """Names and numbers of arguments, and the states and actions in their order."""
        with open(os.path.join(recording.ROOT, "alloc/frontend/torch.h"), encoding="utf-8") as stream:
            header = stream.read()
        declared = {name: arguments.count(",") + 1 if arguments.strip() != "void" else 0
                    for name, arguments in re.findall(
            r"TORCH_API [^;(]*?\bvarve_torch_(\w+)\(((?:[^()]|\([^()]*\))*)\);", header)}
        for name, (_, arguments) in native_library.PROTOTYPES.items():
            expected = declared[name] - (2 if name == "stats" else 0)  # the callback's own commas
            self.assertEqual(len(arguments), expected, name)
        for enum, names in (("block_state", snapshot_tables.STATES), ("action", snapshot_tables.ACTIONS)):
            body = re.search(r"enum varve_torch_%s \{(.*?)\};" % enum, header, re.S).group(1)
            self.assertEqual(tuple(re.findall(r'/\* "(\w+)"', body)), names)


class Answers(OnVarve):
    def test_order(self):
        """The allocator is changed once, before CUDA starts, with all hooks; init comes with CUDA's start."""
        result, err = self.python("""
            import torch
            result["calls"] = torch._C.calls
            result["hooks"] = sorted(torch._C.current.hooks)
            result["backend"] = torch.cuda.get_allocator_backend()
            torch.cuda._lazy_init()
            result["after"] = torch._C.calls[-1]
            result["devices"] = len(torch.cuda.memory._snapshot()["device_traces"])
            """)
        self.assertEqual(err, [])
        self.assertEqual(result["calls"][0], ["_cuda_changeCurrentAllocator", "pluggable"])
        self.assertEqual((result["after"], result["backend"], result["devices"]), (["_cuda_init"], "native", 2))
        self.assertEqual(len(result["hooks"]), 8)

    def test_answers(self):
        """Statistics, peaks, snapshot and pools by PyTorch's own names and keys; nothing reaches its refusals."""
        result, err = self.python("""
            import torch
            memory = torch.cuda.memory
            result["before"] = [memory.memory_stats(), torch._C._accelerator_isAllocatorInitialized()]
            one = memory.caching_allocator_alloc(1000)
            two = memory.caching_allocator_alloc(30 << 20)
            stats = memory.memory_stats()
            result["keys"] = sorted(stats)
            result["live"] = [stats["allocation.all.current"], memory.memory_allocated(),
                              stats["reserved_bytes.all.current"], stats["requested_bytes.small_pool.current"]]
            memory.caching_allocator_delete(two)
            result["peak"] = memory.memory_stats()["allocated_bytes.all.peak"]
            memory.reset_peak_memory_stats()
            memory.reset_accumulated_memory_stats()
            result["reset"] = [memory.memory_stats()[key] for key in
                               ("allocated_bytes.all.peak", "allocation.all.allocated", "num_device_alloc")]
            result["accelerator"] = [torch._C._accelerator_isAllocatorInitialized(),
                                     torch._C._accelerator_getDeviceStats(0)["allocation"]["all"]["current"]]
            torch._C._accelerator_emptyCache()
            result["emptied"] = memory.memory_stats()["reserved_bytes.all.current"]
            memory.caching_allocator_delete(memory.caching_allocator_alloc(30 << 20))
            memory.empty_cache()
            result["emptied again"] = memory.memory_stats()["reserved_bytes.all.current"]
            result["snapshot"] = memory._snapshot()
            result["one"] = one
            result["segments"] = memory.memory_snapshot()
            result["unused"] = sum(memory.memory_stats(1).values())
            result["refused"] = [call for call in torch._C.calls if call[0] not in ("_cuda_changeCurrentAllocator",
                                                                                    "_cuda_init")]
            """)
        self.assertEqual(err, [])
        self.assertEqual((result["before"], result["refused"]), ([{}, False], []))
        self.assertEqual(len(result["keys"]), 122)
        self.assertEqual(result["live"], [2, 1024 + (30 << 20), (2 << 20) + (30 << 20), 1000])
        self.assertEqual(result["peak"], 1024 + (30 << 20))
        self.assertEqual(result["reset"], [1024, 0, 0])
        self.assertEqual((result["accelerator"], result["emptied"], result["emptied again"]),
                         ([True, 1], 2 << 20, 2 << 20))
        self.assertEqual(result["unused"], -1, "a device without allocations: all 0, but max_split_size")
        self.check_snapshot(result["snapshot"], result["one"])
        self.assertEqual(result["segments"], result["snapshot"]["segments"])

    def check_snapshot(self, snapshot, address):
        self.assertEqual(sorted(snapshot), ["allocator_settings", "device_traces", "external_annotations", "segments"])
        self.assertEqual(len(snapshot["segments"]), 1)
        segment = snapshot["segments"][0]
        self.assertEqual({key: segment[key] for key in ("device", "total_size", "allocated_size", "active_size",
                                                        "requested_size", "stream", "segment_type", "segment_pool_id",
                                                        "is_expandable")},
                         {"device": 0, "total_size": 2 << 20, "allocated_size": 1024, "active_size": 1024,
                          "requested_size": 1000, "stream": 0, "segment_type": "small", "segment_pool_id": [0, 0],
                          "is_expandable": False})
        self.assertEqual([(block["address"], block["size"], block["state"]) for block in segment["blocks"]],
                         [(address, 1024, "active_allocated"), (address + 1024, (2 << 20) - 1024, "inactive")])
        self.assertEqual(segment["blocks"][0]["requested_size"], 1000)
        self.assertEqual(sorted(snapshot["allocator_settings"]["roundup_power2_divisions"], key=int),
                         [str(1 << entry) for entry in range(16)])

    def test_history(self):
        """The program's own _record_memory_history and _dump_snapshot; the file is read by builtins alone."""
        dump = os.path.join(self.folder, "dump.pickle")
        result, err = self.python("""
            import torch
            memory = torch.cuda.memory
            torch.cuda._lazy_init()
            result["on"] = [torch._C._cuda_isHistoryEnabled()]
            memory._record_memory_history(max_entries=1000)
            result["on"].append(torch._C._cuda_isHistoryEnabled())
            memory.caching_allocator_delete(memory.caching_allocator_alloc(5000))
            kept = memory.caching_allocator_alloc(600)
            memory._dump_snapshot(sys.argv[1])
            memory._record_memory_history(None)
            result["on"].append(torch._C._cuda_isHistoryEnabled())
            result["left"] = memory._snapshot()["device_traces"][0]
            try:
                memory._record_memory_history("everything")
            except RuntimeError as error:
                result["wrong"] = str(error)
            """, dump)
        self.assertEqual(result["on"], [False, True, False])
        self.assertEqual(result["left"], [])
        self.assertIn("everything", result["wrong"])
        self.assertEqual(len([line for line in err if "no stacks" in line]), 1, err)
        with open(dump, "rb") as stream:
            trace = pickle.load(stream)["device_traces"][0]
        self.assertEqual([(entry["action"], entry["size"]) for entry in trace],
                         [("segment_alloc", 2 << 20), ("alloc", 5000), ("free_requested", 5000),
                          ("free_completed", 5000), ("alloc", 600)])
        self.assertTrue(all(set(entry) >= {"addr", "stream", "time_us", "frames"} for entry in trace))
        self.varve("import", dump, "-o", self.path)  # which takes it as PyTorch's own
        self.open()
        self.assertEqual(self.sql("SELECT kind, count(*) FROM events WHERE kind IN ('alloc', 'free_completed') GROUP"
                                  " BY 1"), [("alloc", 2), ("free_completed", 1)])

    def test_fraction_and_settings(self):
        result, err = self.python("""
            import torch
            memory = torch.cuda.memory
            result["fraction"] = [memory.get_per_process_memory_fraction()]
            memory.caching_allocator_alloc(512)
            memory.set_per_process_memory_fraction(0.25)
            result["fraction"].append(memory.get_per_process_memory_fraction())
            torch._C._cuda_setMemoryMetadata("epoch 3")
            result["metadata"] = torch._C._cuda_getMemoryMetadata()
            memory._set_allocator_settings("max_split_size_mb:64")
            result["settings"] = [memory._snapshot()["allocator_settings"]["max_split_size"]]
            result["own"] = [call for call in torch._C.calls if "ettings" in call[0]]
            memory._set_allocator_settings("no_such_option:1")
            """, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:100")
        self.assertEqual(result["fraction"], [1.0, 0.25])
        self.assertEqual((result["settings"], result["metadata"]), ([64 << 20], "epoch 3"))
        self.assertEqual(result["own"], [["_accelerator_setAllocatorSettings", "max_split_size_mb:64"]])
        self.assertEqual(len([line for line in err if "no_such_option" in line]), 1, err)

    def test_configuration_refused(self):
        """One that varve can't read: PyTorch's own allocator, which will say what it thinks of it."""
        result, err = self.python("import torch\nresult = torch.cuda.get_allocator_backend()",
                                  PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:nonsense")
        self.assertEqual(result, "native")
        self.assertEqual(len(err), 1, err)

    def test_mem_pool(self):
        result, _ = self.python("""
            import torch
            torch.cuda._lazy_init()
            pool, other = torch.cuda.MemPool(), torch.cuda.memory.MemPool(no_split=True)
            result["ids"] = [pool.id, other.id]
            result["counts"] = [pool.use_count(), other.use_count()]
            result["snapshot"] = pool.snapshot()
            del pool, other
            try:
                torch.cuda.MemPool(object())
            except RuntimeError as error:
                result["error"] = str(error)
            """)
        self.assertNotEqual(*result["ids"])
        self.assertEqual((result["counts"], result["snapshot"]), ([1, 1], []))
        self.assertIn("allocator", result["error"])

    def test_children(self):
        """Fork and spawn of multiprocessing, and a program of its own, have the allocator, too."""
        self.write("child.py", """
            import sys

            def work(queue):
                import torch
                torch.cuda.memory.caching_allocator_alloc(700)
                queue.put([torch.cuda.get_allocator_backend(), torch.cuda.memory.memory_allocated()])
            """)
        result, _ = self.python("""
            import multiprocessing, child
            if __name__ == "__main__":
                result = []
                for method in ("spawn", "fork"):
                    context = multiprocessing.get_context(method)
                    queue = context.SimpleQueue()
                    process = context.Process(target=child.work, args=(queue,))
                    process.start()
                    result.append(queue.get())
                    process.join()
            """)
        self.assertEqual(result, [["native", 1024], ["native", 1024]])


class Cxx(OnVarve):
    """What PyTorch's C++ asks the allocator: virtual functions that the pluggable class refuses, from varve."""

    ASK = """
        import ctypes, torch
        c10, ask = torch._C.c10, torch._C.ask
        torch.cuda._lazy_init()
        """
    BENCHMARK = """
        import ctypes, torch
        from torch.backends import cudnn
        cudnn.benchmark = True
        result["benchmark"] = cudnn.benchmark
        torch._C._set_cudnn_benchmark(True)
        result["again"] = cudnn.benchmark
        """

    def test_cache_info(self):
        """In place of PyTorch's exception; the program's benchmark mode stays as it wants it."""
        result, err = self.python(self.BENCHMARK + """
        torch.cuda._lazy_init()
        largest = ctypes.c_size_t(0)
        torch._C.ask("cache_info", 0, ctypes.byref(largest))
        result["largest"] = largest.value
        """)
        self.assertGreater(result["largest"], 1 << 20)
        self.assertEqual((result["benchmark"], result["again"], err), (True, True, []))

    def test_without_the_table(self):
        """Where PyTorch's symbols are not found: one line, the plain allocator, and benchmark mode off, with a line."""
        result, err = self.python(self.BENCHMARK + "\n        torch.cuda.memory.caching_allocator_alloc(512)",
                                  FAKE_TORCH_LIBRARY="")
        self.assertEqual((result["benchmark"], result["again"]), (False, False))
        self.assertEqual(["only the plain allocator" in line or "benchmark stays off" in line for line in err],
                         [True, True], err)

    def test_other_versions(self):
        """What a version should have, and this library has otherwise, is named before the program goes on."""
        for version, missing in (("2.5.1", ["createOrIncrefPool", "setUseOnOOM"]),
                                 ("2.9.0+x", ["setNoSplit"]), ("2.12.0", []), ("9.1", [])):
            result, err = self.python("import torch\nresult = torch.cuda.get_allocator_backend()",
                                      FAKE_TORCH_VERSION=version)
            self.assertEqual(result, "native")
            self.assertEqual([line for line in err if "refuses under --torch" in line], err)
            self.assertEqual(len(err), bool(missing), err)
            for name in missing:
                self.assertIn(name, err[0])

    def test_figures(self):
        result, err = self.python(self.ASK + """
        memory = torch.cuda.memory
        kept = memory.caching_allocator_alloc(5000)
        allocated, expandable = ctypes.c_int64(), ctypes.c_size_t()
        result["is_unlimited"] = ask("allocated", 0, ctypes.byref(allocated)) == 0
        result["allocated"] = allocated.value
        result["history"] = [torch._C._cuda_isHistoryEnabled()]
        memory._record_memory_history()
        result["history"].append(torch._C._cuda_isHistoryEnabled())
        result["copies"] = [ask("between", *flags) for flags in ((0, 0), (0, 1), (1, 1))]
        streams = [memory.caching_allocator_alloc(30 << 20, stream=stream) for stream in (0, 5, 5, 6)]
        result["expandable"] = [ask("expandable", ctypes.byref(expandable)), expandable.value]
        """, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
        self.assertEqual(result, {"is_unlimited": True, "allocated": 5120, "history": [False, True],
                                  "copies": [1, 2, 1], "expandable": [2, (60 + 40) << 20]})
        self.assertEqual(len(err), 1, err)  # of the history

    def test_out_of_memory(self):
        """Observers hear of it; what one throws is what the program sees."""
        result, _ = self.python(self.ASK + """
        heard = []
        torch._C._cuda_attach_out_of_memory_observer(lambda *figures: heard.append(figures[:2]))
        torch._C._cuda_attach_out_of_memory_observer(lambda *figures: 1 / len(heard[1:]))
        take = ctypes.PyDLL(os.environ["VARVE_TORCH_LIBRARY"]).varve_torch_alloc
        caller = ctypes.CDLL(sys.argv[1])
        text = ctypes.create_string_buffer(1000)
        for _ in range(2):
            caller.caller_alloc(take, ctypes.c_size_t(1 << 40), 0, ctypes.c_uint64(0), text, ctypes.c_size_t(1000))
            result.setdefault("thrown", []).append(text.value.decode())
        result["heard"] = heard
        """, recording.program("lib_torch_caller.so"), VARVE_TORCH_LIMIT=str(1 << 28))
        self.assertEqual(result["heard"], [[0, 1 << 40]] * 2)
        self.assertIn("the observer's own", result["thrown"][0])
        self.assertIn("CUDA out of memory", result["thrown"][1])

    def test_pools(self):
        result, err = self.python(self.ASK + """
        library = ctypes.CDLL(os.environ["VARVE_TORCH_LIBRARY"])
        result["wrong"] = ask("take_back", ctypes.c_uint64(77), library.varve_torch_begin_allocate_to_pool,
                              library.varve_torch_end_allocate_to_pool)
        result["left"] = torch.cuda.memory_allocated()
        result["count"] = ask("use_count", ctypes.c_uint64(77))
        """)
        self.assertEqual((result, err), ({"wrong": 0, "left": 0, "count": 2}, []))

    def test_recorded_pools(self):
        """Whose a private pool is, and who first asked the device for memory there, as the stacks say."""
        trees = self.write("torch/_inductor/cudagraph_trees.py", "def run(call):\n    return call()\n")
        program = self.write("program.py", textwrap.dedent("""
            import ctypes, os, runpy, sys, torch
            run = runpy.run_path(sys.argv[1])["run"]
            torch.cuda._lazy_init()
            library = ctypes.CDLL(os.environ["VARVE_TORCH_LIBRARY"])
            def forward(number, through):
                begin, end = library.varve_torch_begin_allocate_to_pool, library.varve_torch_end_allocate_to_pool
                return through(lambda: torch._C.ask("take_back", ctypes.c_uint64(number), begin, end))
            forward(77, run)
            forward(78, lambda call: call())
            """).lstrip())
        environment = {name: value for name, value in self.environment.items() if name != "VARVE_TORCH"}
        self.varve("record", "--torch", "-o", self.path, "--", sys.executable, program, trees,
                   env=environment | {"PYTHONPATH": FAKE})
        self.open()
        rows = [("CUDA graph trees", 77), ("MemPool or handle", 78)]
        self.assertEqual(self.sql("SELECT kind, user_id, user_file, user_line, segments FROM private_pool"
                                  " ORDER BY number"), [(*row, program, 7, 2) for row in rows])
        pools = json.loads(self.varve("segments", "--json", self.path).out)["totals"][0]["private_pools"]
        self.assertEqual([(pool["kind"], pool["segment_pool_id"], pool["size"], pool["user_line"]) for pool in pools],
                         [(kind, [0, number], 22 << 20, 7) for kind, number in rows])
        for kind, number in rows:
            self.assertRegex(self.varve("segments", self.path).out,
                             rf"22\.0 MiB \(0, {number}\) +{kind}: .*program\.py:7\)")

    def test_other_process(self):
        """A block in a segment is read and written where it lies."""
        child = self.write("child.py", textwrap.dedent("""
            import ctypes, os, sys, torch
            torch.cuda._lazy_init()
            text = bytes.fromhex(sys.argv[1])
            print(torch._C.ask("open_shared", text, ctypes.c_size_t(len(text)), ctypes.c_size_t(int(sys.argv[2]))))
            """))
        result, err = self.python(self.ASK + """
        import subprocess
        text, offset = ctypes.create_string_buffer(200), ctypes.c_size_t()
        size = ask("share", text, ctypes.c_size_t(200), ctypes.byref(offset))
        words = [text.raw[:size].hex(), str(offset.value)]
        said = subprocess.run([sys.executable, sys.argv[1], *words], stdout=subprocess.PIPE, text=True).stdout
        result.update(size=size, kind=text.raw[1:2].decode(), offset=offset.value, said=said.strip())
        try:
            ask("open_shared", b"x" * 70, ctypes.c_size_t(70), ctypes.c_size_t(0))
        except RuntimeError as error:
            result["error"] = str(error)
        """, child)
        self.assertEqual((result["size"], result["kind"], result["said"], err), (66, "c", "0", []))
        self.assertGreater(result["offset"], 0)
        self.assertIn("a form that varve does not know", result["error"])

    OWN = """
        import torch
        memory, ours = torch.cuda.memory, torch._C.current
        mine = memory.CUDAPluggableAllocator(os.environ["VARVE_TORCH_LIBRARY"], "varve_torch_alloc", "varve_torch_free")
        """

    def test_program_has_its_own(self):
        """Its allocator is used, as without varve, and PyTorch's functions are PyTorch's again."""
        result, err = self.python(self.OWN + """
        memory.change_current_allocator(mine)
        result["is_mine"] = torch._C.current is mine.allocator()
        result["module"] = [torch._C._cuda_memoryStats.__module__, torch.cuda.MemPool.__module__]
        """)
        self.assertTrue(result["is_mine"])
        self.assertEqual(result["module"], ["torch._C", "torch.cuda.memory"])
        self.assertEqual([line for line in err if "allocator of its own" in line], err)
        self.assertEqual(len(err), 1)

    def test_program_is_too_late(self):
        """After CUDA's start PyTorch refuses it, as without varve."""
        result, _ = self.python(self.OWN + """
        torch.cuda._lazy_init()
        try:
            memory.change_current_allocator(mine)
        except RuntimeError as error:
            result["error"] = str(error)
        result["stays"] = torch._C.current is ours
        """)
        self.assertEqual(result, {"error": "Can't swap an already initialized allocator", "stays": True})

    def test_no_way_back(self):
        """Where the pointer can't be found ours stays, and the program goes on."""
        result, err = self.python(self.OWN + """
        memory.change_current_allocator(mine)
        result["stays"] = torch._C.current is ours
        """, FAKE_TORCH_LIBRARY="")
        self.assertTrue(result["stays"])
        self.assertEqual(len([line for line in err if "stays" in line and "allocator of its own" in line]), 1, err)


class Recorded(OnVarve):
    """The whole way: `varve record --torch` sets all of it up itself."""

    PROGRAM = """
        import torch
        memory = torch.cuda.memory

        def train():
            return memory.caching_allocator_alloc(1234)

        kept = [train() for _ in range(5)]
        memory.caching_allocator_delete(kept.pop())
        result["backend"], result["pid"] = torch.cuda.get_allocator_backend(), os.getpid()
        """

    def setUp(self):
        super().setUp()
        if "--torch" not in recording.varve("record", "--help").out:
            self.skipTest(f"{recording.VARVE} has no --torch")
        self.environment = {"PATH": os.environ["PATH"], "PYTHONPATH": FAKE, "VARVE_TORCH_DEVICE": "host",
                            "VARVE_TORCH_LIBRARY": LIBRARY, "VARVE_PYTHON": os.path.join(SHIM, "sitecustomize.py"),
                            "FAKE_TORCH_LIBRARY": FAKE_LIBRARY}

    def run_recorded(self, *options):
        program = self.write("train.py", "import json, os\nresult = {}\n" + textwrap.dedent(self.PROGRAM)
                             + "\nprint(json.dumps(result))\n")
        outcome = self.record(sys.executable, program, options=["-q", *options], env=self.environment, cwd=self.folder)
        return recording.json_lines(outcome.out)[0], outcome.err

    def test_allocate(self):
        """Each block with the program's own lines."""
        said, err = self.run_recorded("--torch", "--stacks", "python")
        self.assertEqual(err, "")
        self.assert_finished()
        self.assert_no_loss()
        self.assertEqual(said["backend"], "native")
        blocks = self.sql("SELECT a.requested, a.free_requested_seq IS NOT NULL, (SELECT f.line FROM frame f WHERE"
                          " f.callsite_id = a.callsite_id AND f.is_python AND f.function = 'train'"
                          " AND f.file LIKE '%/train.py') FROM allocations a WHERE domain = 'block' ORDER BY"
                          " a.alloc_seq")
        self.assertEqual(blocks, [(1234, 0, 8)] * 4 + [(1234, 1, 8)])

    def test_on_oom(self):
        """The state when a request fails, with its line, in a folder that is made; and why, in words."""
        program = self.write("train.py", """
            import ctypes, os, sys, torch
            torch.cuda._lazy_init()
            caller = ctypes.CDLL(sys.argv[1])
            caller.caller_alloc.restype = ctypes.c_void_p
            take = ctypes.PyDLL(os.environ["VARVE_TORCH_LIBRARY"]).varve_torch_alloc

            def train(count):
                text, served = ctypes.create_string_buffer(3000), 0
                for _ in range(count):
                    served += caller.caller_alloc(take, ctypes.c_size_t(30 << 20), 0, ctypes.c_uint64(0), text,
                                                  ctypes.c_size_t(3000)) is not None
                return served

            print(train(30))
            """)
        folder = os.path.join(self.folder, "states")
        outcome = self.record(sys.executable, program, recording.program("lib_torch_caller.so"), cwd=self.folder,
                              options=["-q", "--torch", "--on-oom", folder],
                              env={**self.environment, "VARVE_TORCH_LIMIT": str(1 << 29)})
        self.assertEqual(outcome.out, "17\n")  # of 30; of 13 failures 8 are written
        names = sorted(os.listdir(folder))
        recording.wait_until(lambda: len([name for name in os.listdir(folder) if name.endswith(".txt")
                                          and os.path.getsize(os.path.join(folder, name))]) == 8)
        self.assertEqual(len([name for name in names if name.endswith(".pickle")]), 8)
        first = next(os.path.join(folder, name) for name in names if name.endswith(".1.pickle"))
        said = self.varve("oom", "--no-replay", first).out
        self.assertRegex(said, r"device 0.*30\.0 MiB \(31,457,280\) asked for\n +by +train \(.*train.py:\d+\)")
        with open(first.replace(".pickle", ".txt"), encoding="utf-8") as stream:
            self.assertIn("30.0 MiB (31,457,280) asked for", stream.read())
        self.assertEqual(outcome.err.count("has its state; varve oom"), 8)

    def test_on_oom_refused(self):
        for options, text in ((["--on-oom", "x"], "it needs --torch"), (["--torch", "--on-oom", "/dev/null/x"],
                                                                         "'/dev/null/x': Not a directory")):
            outcome = recording.varve("record", *options, "-o", self.path, "--", "true")
            self.assertEqual(outcome.returncode, 2)
            self.assertIn(text, outcome.err)

    def test_observe(self):
        """PyTorch's own history in a database of its own; nothing else is left."""
        said, err = self.run_recorded("--torch=observe", "--stacks", "none")
        self.assertEqual(said["backend"], "native")
        path = os.path.join(self.folder, f"trace.torch.{said['pid']}.db")
        # 5 allocations, both halves of a free, and the segment, which was there before
        self.assertEqual(err, f"varve: PyTorch's own history: 8 events in {path}\n")
        self.assert_finished(path)
        self.assertEqual(self.sql("SELECT kind, count(*) FROM events WHERE kind IN ('alloc', 'free_completed') GROUP"
                                  " BY 1"),
                         [("alloc", 5), ("free_completed", 1)])
        self.assertEqual([name for name in os.listdir(self.folder) if "pickle" in name], [])

    def test_observe_summary(self):
        """Of a process that only starts CUDA no history is left, and what the summary leads to has events."""
        program = self.write("train.py", "import json, os, sys\nresult = {}\n" + textwrap.dedent(self.PROGRAM) + "\n"
                             "os.system(f'{sys.executable} -c \"import torch; torch.cuda._lazy_init()\"')\n"
                             "print(json.dumps(result))\n")
        outcome = self.record(sys.executable, program, options=["--torch=observe"], env=self.environment,
                              cwd=self.folder)
        path = os.path.join(self.folder, f"trace.torch.{recording.json_lines(outcome.out)[0]['pid']}.db")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("trace.torch")],
                         [os.path.basename(path)])
        self.assertIn(f"next: varve report {path}\n", outcome.err)


if __name__ == "__main__":
    recording.main()
