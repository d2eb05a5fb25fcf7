#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 4 s
"""The Python side of `varve record --torch` as a guest: nobody sees it, and it fails nobody; observe mode; the
profiler."""

import os
import pickle
import shutil
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402
from torch_shim import FAKE, SHIM, Shim  # noqa: E402


class Start(Shim):
    """sitecustomize.py: nobody sees it, and nothing goes wrong because of it."""

    MARK = "import sys\nsys.marked = getattr(sys, 'marked', []) + [{!r}]\n"

    def modules(self, **environment):
        return self.python("result = sorted(sys.modules)", **environment)

    def test_costs_nothing_without_torch(self):
        """No module more than without it, whatever the mode."""
        plain, _ = self.modules(PYTHONPATH=FAKE)
        for mode in ("allocate", "observe"):
            loaded, err = self.modules(VARVE_TORCH=mode)
            self.assertLessEqual(set(loaded) - set(plain), {"sitecustomize"})
            self.assertEqual(err, [])

    def test_user_sitecustomize_runs(self):
        """Once, under its own name, with the sys.path that it would have seen, before the program."""
        site = os.path.join(self.folder, "site")
        self.write("site/sitecustomize.py", self.MARK.format("user") + "seen = list(sys.path)\nname = __name__\n")
        program = "import sitecustomize\nresult = "\
                  "[sys.marked, sitecustomize.__file__, sitecustomize.name, sitecustomize.seen]"
        with_shim, err = self.python(program, VARVE_TORCH="allocate", PYTHONPATH=os.pathsep.join([SHIM, site]))
        without, _ = self.python(program, PYTHONPATH=site)
        self.assertEqual(with_shim, without)
        self.assertEqual((with_shim[0], err), (["user"], []))

    def test_shim_twice(self):
        """varve record inside varve record, and the same entry twice: one hook."""
        other = os.path.join(self.folder, "other")
        shutil.copytree(SHIM, other)
        result, err = self.python("result = [type(finder).__name__ for finder in sys.meta_path]", VARVE_TORCH="observe",
                                  PYTHONPATH=os.pathsep.join([SHIM, other, SHIM, FAKE]))
        self.assertEqual((result.count("TorchFinder"), err), (1, []))

    def test_user_sitecustomize_fails(self):
        """As without varve: the interpreter reports it, and the program runs."""
        site = os.path.join(self.folder, "site")
        for text in ("raise ValueError('mine')\n", "import no_such_module\n", "raise ImportError('mine')\n"):
            self.write("site/sitecustomize.py", text)
            _, plain = self.python("pass", PYTHONPATH=site)
            _, shimmed = self.python("pass", VARVE_TORCH="allocate", PYTHONPATH=os.pathsep.join([SHIM, site]))
            self.assertEqual(shimmed, plain)
            self.assertNotEqual(plain, [])

    def test_path_stays_for_children(self):
        result, _ = self.python("""
            import subprocess
            child = "import sys; print([type(finder).__name__ for finder in sys.meta_path][0])"
            run = lambda *options: subprocess.run([sys.executable, *options, "-c", child], stdout=subprocess.PIPE,
                                                  check=True).stdout.decode().strip()
            result = [run(), run("-I"), run("-S"), sys.path.count(os.environ["PYTHONPATH"].split(os.pathsep)[0])]
            """, VARVE_TORCH="observe")
        self.assertEqual(result[0], "TorchFinder")
        self.assertEqual(result[3], 1)
        for isolated in result[1:3]:
            self.assertNotEqual(isolated, "TorchFinder", "nothing can be done for -I and -S")

    def test_mode_unset(self):
        result, err = self.python("import torch\nresult = torch._C._cuda_init.__module__")
        self.assertEqual((result, err), ("torch._C", []))

    def test_import_that_fails(self):
        """The error is the program's, and the next import is seen, too."""
        result, err = self.python("""
            try:
                import torch
            except ImportError as error:
                result["first"] = str(error)
            os.environ["FAKE_TORCH_FAILS"] = ""
            import torch
            result["second"] = torch._C._cuda_init.__module__
            result["hooks"] = sum(type(finder).__name__ == "TorchFinder" for finder in sys.meta_path)
            """, VARVE_TORCH="observe", VARVE_TORCH_HISTORY="/nowhere/x", FAKE_TORCH="fails", FAKE_TORCH_FAILS="1")
        self.assertIn("libfake.so", result["first"])
        self.assertEqual((result["second"], result["hooks"], err), ("varve_torch.observe", 0, []))

    def test_loader_stays(self):
        """The loader that others ask for sources is the import system's own."""
        result, _ = self.python("""
            import inspect, pkgutil, torch
            result = [type(torch.__spec__.loader).__name__, torch.__loader__ is torch.__spec__.loader,
                      "exec_module" in vars(torch.__spec__.loader), "FAKE_TORCH" in inspect.getsource(torch)]
            """, VARVE_TORCH="observe")
        self.assertEqual(result, ["SourceFileLoader", True, False, True])

    def test_no_torch(self):
        result, err = self.python("""
            import importlib.util
            result["spec"] = importlib.util.find_spec("torch") is None
            try:
                import torch
            except ModuleNotFoundError as error:
                result["error"] = str(error)
            """, VARVE_TORCH="allocate", PYTHONPATH=SHIM)
        self.assertEqual((result, err), ({"spec": True, "error": "No module named 'torch'"}, []))

    def test_broken_package(self):
        """Half an installation, or one of another version: one line."""
        half = os.path.join(self.folder, "half")
        os.mkdir(half)
        shutil.copy(os.path.join(SHIM, "sitecustomize.py"), half)
        result, err = self.python("import torch\nresult = torch.__version__", VARVE_TORCH="allocate",
                                  PYTHONPATH=os.pathsep.join([half, FAKE]))
        self.assertEqual(result, "2.11.0+fake")
        self.assertEqual([line.startswith("varve: PyTorch runs as if --torch were not there") for line in err], [True],
                         err)

    def test_no_stderr(self):
        """Closed: a line that can't be said is no reason to fail."""
        result, _ = self.python("import os\nos.close(2)\nsys.stderr = None\nimport torch\nresult = torch.__version__",
                                VARVE_TORCH="allocate", VARVE_TORCH_LIBRARY="/no/such.so")
        self.assertEqual(result, "2.11.0+fake")


class Refusals(Shim):
    """allocate where it can't be: one line, and PyTorch as it was."""

    def refused(self, line, fake="", **environment):
        result, err = self.python("""
            import torch
            result = [torch.cuda.memory.get_allocator_backend()
                      if hasattr(torch._C, "_cuda_getAllocatorBackend") else None,
                      getattr(getattr(torch._C, "_cuda_memoryStats", None), "__module__", None)]
            """, VARVE_TORCH="allocate", FAKE_TORCH=fake, **{"VARVE_TORCH_LIBRARY": "/no/such.so", **environment})
        self.assertEqual(len(err), 1, err)
        self.assertRegex(err[0], "^varve: .*" + line)
        return result

    def test_refusals(self):
        with open("/proc/self/maps", encoding="utf-8") as maps:
            other = next(line.split()[-1] for line in maps if "libc.so" in line)
        for line, fake, backend, more in (
                ("without CUDA", "no_cuda", None, {}), ("ROCm", "hip", None, {}),
                ("initialised already", "initialised", "native", {}),
                ("cudaMallocAsync", "async", "cudaMallocAsync", {}),
                ("no/such.so", "", "native", {}), ("undefined symbol", "", "native", {"VARVE_TORCH_LIBRARY": other})):
            self.assertEqual(self.refused(line, fake, **more), [backend, backend and "torch._C"])

    def test_observe_without_cuda(self):
        _, err = self.python("import torch", VARVE_TORCH="observe", FAKE_TORCH="no_cuda")
        self.assertEqual(err, ["varve: this PyTorch is built without CUDA, or keeps no history of its allocator; "
                               "--torch=observe has nothing to do"])


class Observe(Shim):
    """PyTorch's own history of its own allocator, in a file per process that used CUDA."""

    TRAIN = """
        import torch
        memory = torch.cuda.memory
        kept = memory.caching_allocator_alloc(4096)
        memory.caching_allocator_delete(memory.caching_allocator_alloc(512))
        result["pid"], result["calls"] = os.getpid(), torch._C.calls
        result["backend"] = torch.cuda.get_allocator_backend()
        """

    def setUp(self):
        super().setUp()
        self.history = os.path.join(self.folder, "trace.torch")
        self.environment.update(VARVE_TORCH="observe", VARVE_TORCH_HISTORY=self.history)

    def pickles(self):
        return sorted(name for name in os.listdir(self.folder) if name.startswith("trace.torch"))

    def load(self, pid):
        with open(f"{self.history}.{pid}.pickle", "rb") as stream:
            data = stream.read()
        self.assertEqual(data[:2], b"\x80\x04", "pickle protocol 4")
        return pickle.loads(data)

    def test_history(self):
        """Switched on in CUDA's start, with stacks of Python, without a bound; written at the end."""
        result, err = self.python(self.TRAIN)
        self.assertEqual((err, result["backend"]), ([], "native"))
        self.assertEqual(result["calls"][:2], [["_cuda_init"], ["_cuda_record_memory_history", [
            "all", "alloc", "python", sys.maxsize, False, False, False, []]]])
        self.assertEqual(self.pickles(), [f"trace.torch.{result['pid']}.pickle"])
        trace = self.load(result["pid"])["device_traces"][0]
        self.assertEqual([entry["action"] for entry in trace], ["alloc", "alloc", "free_requested", "free_completed"])

    def test_backward(self):
        """What a backward pass allocates in threads without a beginning of their own has the frames of who waits."""
        result, err = self.python("""
            import threading, time, torch
            memory = torch.cuda.memory
            allocate = memory.caching_allocator_alloc
            made = {"call": ("inductor_cache/a.py", 7), "_bootstrap": (threading.__file__, 1), "<module>":
                    (os.path.abspath(sys.argv[0]), 9)}

            def run():
                torch._C.frames[:] = []
                allocate(1)
                for name, (filename, line) in made.items():
                    torch._C.frames[:] = [{"filename": filename, "name": name, "line": line}]
                    allocate(2)
            run()
            time.sleep(0.001)  # clocks may differ a little
            torch.autograd.backward(lambda: torch.autograd.backward(run))
            time.sleep(0.001)
            torch._C.frames[:] = []
            allocate(1)
            result["pid"] = os.getpid()
            """)
        self.assertEqual(err, [])
        trace = [[(frame["name"], os.path.basename(frame["filename"])) for frame in entry["frames"]]
                 for entry in self.load(result["pid"])["device_traces"][0]]
        own = [[], [("call", "a.py")], [("_bootstrap", "threading.py")], [("<module>", "program.py")]]
        outside = [("backward", "__init__.py"), ("<module>", "program.py")]
        self.assertEqual(trace, own + [outside, own[1] + outside, own[2], own[3]] + [[]])

    def test_ranges_of_pools(self):
        """What is unmapped in parts, across neighbours, and mapped again."""
        sys.path.insert(0, SHIM)
        self.addCleanup(sys.path.remove, SHIM)
        from varve_torch.pool_contexts import Mapped
        mapped = Mapped()
        for addr, size, pool in ((100, 60, "a"), (160, 40, "b"), (300, 10, "c")):
            mapped.add(addr, size, pool)
        self.assertEqual(mapped.remove(120, 60), "a")  # of a and b
        self.assertEqual([mapped.pool_at(addr) for addr in (99, 100, 119, 120, 179, 180, 199, 200, 300, 310)],
                         [None, "a", "a", None, None, "b", "b", None, "c", None])
        mapped.add(120, 60, "d")
        self.assertEqual(mapped.remove(0, 1000), None)
        self.assertEqual(mapped.starts, [])

    def test_passes(self):
        """Who waited when, with passes of several threads at once."""
        sys.path.insert(0, SHIM)
        self.addCleanup(sys.path.remove, SHIM)
        from varve_torch.backward_passes import BackwardPasses
        passes = BackwardPasses()
        passes.passes = [(1000, 2000, "a"), (2010, 3000, "b"), (9000, 9900, "d"), (5000, 9500, "c")]
        frames_at = passes.who_waited()
        self.assertEqual([frames_at(moment) for moment in (900, 960, 2000, 2004, 2007, 3040, 3100, 6000, 9200, 9800)],
                         [None, "a", "a", "a", "b", "b", None, "c", None, "d"])

    def test_pools(self):
        """Each entry's private pool, by the thread that asked and by the stream that is captured; the program's own
        text is what it was, for itself and in the history."""
        result, err = self.python("""
            import threading, time, torch
            memory, C = torch.cuda.memory, torch._C
            take = memory.caching_allocator_alloc

            def elsewhere(stream, act=take, size=1):
                thread = threading.Thread(target=act, args=(size, None, stream))
                thread.start()
                thread.join()

            def fail(size=1 << 50, device=None, stream=0):
                try:
                    take(size, device, stream)
                except RuntimeError:
                    pass

            take(1)
            fail()
            C._cuda_setMemoryMetadata("mine")
            C._cuda_beginAllocateCurrentThreadToPool(0, (0, 3))
            one = take(2)
            elsewhere(0)
            fail()
            elsewhere(0, fail, 1 << 50)
            C._cuda_beginAllocateCurrentThreadToPool(0, (0, 4))
            take(2)
            result["text"] = C._cuda_getMemoryMetadata()
            C._cuda_endAllocateToPool(0, (0, 4))
            C._cuda_setMemoryMetadata("other")
            take(2)
            C._cuda_endAllocateToPool(0, (0, 3))
            memory.caching_allocator_delete(one)
            take(1)
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin((5, 0))
            take(2, None, 7)
            elsewhere(7)
            elsewhere(7, fail, 1 << 50)
            elsewhere(0)
            graph.capture_end()
            time.sleep(0.001)  # clocks may differ a little
            take(1, None, 7)
            result["calls"] = [call for call in C.calls if call[0] in ("begin", "end")]
            result["pid"] = os.getpid()
            """, FAKE_TORCH="segments")
        self.assertEqual(err, [])
        trace = self.load(result["pid"])["device_traces"][0]
        self.assertEqual((result["text"], len(result["calls"])), ("mine", 4))
        pools = [entry.get("pool_id") for entry in trace if entry["action"] == "alloc"]
        self.assertEqual(pools, [None, (0, 3), None, (0, 4), (0, 3), None, (5, 0), (5, 0), None, None])
        self.assertEqual(pools, [entry.get("pool_id") for entry in trace if entry["action"] == "segment_alloc"])
        self.assertEqual([entry.get("pool_id") for entry in trace if entry["action"] == "segment_free"], [(0, 3)])
        self.assertEqual([entry.get("pool_id") for entry in trace if entry["action"] == "oom"],
                         [None, (0, 3), None, (5, 0)])
        texts = [entry["user_metadata"] for entry in trace if entry["action"] == "alloc"]
        self.assertEqual(texts, ["", "mine", "", "mine", "other", "other", "other", "", "", "other"])

    def test_without_cuda_no_file(self):
        _, err = self.python("import torch")
        self.assertEqual((self.pickles(), err), ([], []))

    def test_ends(self):
        """The file is there after an exception, sys.exit and the program's own exit handlers; not after os._exit."""
        for end, status in (("raise ValueError", 1), ("sys.exit(3)", 3), ("import atexit; atexit.register(print)", 0)):
            self.python(self.TRAIN + "\n" + " " * 8 + end, status=status)
        self.assertEqual(len(self.pickles()), 3)
        self.python(self.TRAIN + "\n" + " " * 8 + "os._exit(0)")
        self.assertEqual(len(self.pickles()), 3)

    def test_children(self):
        """Each process that uses CUDA writes its own, however it was started."""
        self.write("child.py", """
            def work(queue):
                import os, torch
                torch.cuda.memory.caching_allocator_alloc(512)
                queue.put(os.getpid())
            """)
        result, err = self.python("""
            import multiprocessing, child
            if __name__ == "__main__":
                result = []
                for method in ("spawn", "fork", "forkserver"):
                    context = multiprocessing.get_context(method)
                    queue = context.SimpleQueue()
                    process = context.Process(target=child.work, args=(queue,))
                    process.start()
                    result.append(queue.get())
                    process.join()
                import torch  # only now, so that no child had it from here
                torch.cuda._lazy_init()
                result.append(os.getpid())
            """)
        self.assertEqual(self.pickles(), sorted(f"trace.torch.{pid}.pickle" for pid in result), err)

    def test_program_records_itself(self):
        """Its settings count; one line, and the file all the same."""
        result, err = self.python(self.TRAIN + """
        memory._record_memory_history("all", max_entries=10)
        memory._record_memory_history(None)
        result["last"] = torch._C.calls[-1][1][0]
        """)
        self.assertEqual([line for line in err if "the program changes PyTorch's memory history" in line], err)
        self.assertEqual((len(err), result["last"], len(self.pickles())), (1, None, 1))

    def test_no_place(self):
        """The folder is gone: a line, no half file, the program's own status."""
        _, err = self.python(self.TRAIN + "\n" + " " * 8 + "sys.exit(5)", status=5,
                             VARVE_TORCH_HISTORY="/no/such/folder/x")
        self.assertEqual([line for line in err if "is lost" in line], err)
        self.assertEqual(len(err), 1)

    def test_started_before(self):
        _, err = self.python("import torch", FAKE_TORCH="initialised")
        self.assertEqual([line for line in err if "lacks its first events" in line or "is lost" in line], err)


def compile_library(case, name, source):
    """A shared object from a few lines of C."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if not compiler:
        case.skipTest("no C compiler")
    path = os.path.join(case.folder, name)
    outcome = recording.run([compiler, "-shared", "-fPIC", "-o", path, case.write(name + ".c", source)])
    case.assertEqual(outcome.returncode, 0, outcome)
    return path


class Backward(Shim):
    PUBLISH = """
        int published, ended, skipped;
        void *code_of;
        void varve_python_stack_publish(unsigned skip, void *code) { published++; skipped = skip; code_of = code; }
        void varve_python_stack_withdraw(void) { ended++; }
        """
    PROGRAM = """
        import ctypes, torch
        read = lambda: [ctypes.c_int.in_dll(ctypes.CDLL(None), name).value
                        for name in ("published", "ended", "skipped")]
        result["inside"] = torch.autograd.backward(lambda value: [value, *read()], 7)
        try:
            torch.autograd.graph._engine_run_backward(lambda: 1 / 0)
        except ZeroDivisionError:
            result["after"] = read()
        import threading
        code = ctypes.c_void_p.in_dll(ctypes.CDLL(None), "code_of").value
        result["code"] = code == id(threading.Thread._bootstrap.__code__)
        """

    def test_frames_are_inherited(self):
        """To the recorder, while backward() runs, also if it fails."""
        path = compile_library(self, "librecorder.so", self.PUBLISH)
        for mode in ("observe", "profiler"):
            result, err = self.python(self.PROGRAM, VARVE_TORCH=mode, LD_PRELOAD=path)
            self.assertEqual((result, err), ({"inside": [7, 1, 0, 1], "after": [2, 2, 1], "code": True}, []))

    def test_no_recorder(self):
        result, err = self.python("""
            import torch
            result = [torch.autograd.backward(lambda: 5), torch.autograd._engine_run_backward.__module__]
            """, VARVE_TORCH="observe")
        self.assertEqual((result, err), ([5, "torch.autograd.graph"], []))


class Profiler(Shim):
    PROFILE = """
        import ctypes, torch
        recorder = ctypes.CDLL(os.environ["CUDA_INJECTION64_PATH"]) if result is not None else None
        for activities in (["ProfilerActivity.CPU"], ["ProfilerActivity.CUDA"]):
            with torch.autograd.profiler.profile(activities):
                result[activities[0]] = ctypes.c_int.in_dll(recorder, "released").value
        """

    def setUp(self):
        super().setUp()
        path = compile_library(self, "libvarve-cupti.so", "int released;\nint varve_cupti_release(void) { return"
                                                          " released++ > 0; }\n")
        self.environment.update(VARVE_TORCH="profiler", CUDA_INJECTION64_PATH=path)

    def test_subscription(self):
        """Given up before the program's profiler asks for it, if it wants CUDA at all, and is not told to keep it."""
        for keep, released in (("", 1), ("keep", 0)):
            result, err = self.python(self.PROFILE, VARVE_CUPTI_PROFILER=keep)
            self.assertEqual(result, {"ProfilerActivity.CPU": 0, "ProfilerActivity.CUDA": released})
            self.assertEqual(["given up CUPTI" in line for line in err], [released == 1])

    def test_recorder_is_not_there(self):
        """Nothing is loaded for it."""
        result, err = self.python("""
            import torch
            with torch.autograd.profiler.profile():
                result = "libvarve-cupti.so" in open("/proc/self/maps").read()
            """)
        self.assertEqual((result, err), (False, []))


if __name__ == "__main__":
    recording.main()
