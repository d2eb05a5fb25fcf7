# SPDX-License-Identifier: Apache-2.0
"""Records what a step of a PyTorch program does with memory, operator by operator, as a log that `varve dtr LOG` plays
under any budget (the log format of DTR). PyTorch (2.4 or newer) is imported when a recording begins;
libvarve.so is not needed.

    import varve.oplog
    with varve.oplog.record("model.log") as log:  # one step; model.log.xz and model.log.gz are compressed at the end
        loss = model(x).sum()
        log.backward()                            # optional: marks where the backward pass begins
        loss.backward()
    print(log.peak_bytes)

or, for a program that is left as it is, the forward and backward pass before its N-th optimizer step:

    python3 -m varve.oplog -o model.log --step 3 train.py ARGS…

What stands in the log:

- The storages of one device, each under a name of its own; tensors on other devices are left out of what operators take
  and make. The device is `device`, else the accelerator whose tensors have most bytes when the first operator
  runs, else the CPU.
- CONSTANT: what is there before, when the first operator runs, and one more for what the device's allocator has lent
  otherwise (CUDA: libraries' workspaces, tensors that Python does not see). With all_live=False only what operators
  take. A player keeps constants for good: drop what the step has no use for before it, as with optimizer.zero_grad().
- CALL: an operator that made storages, with its own time: on a GPU from an idle device to an idle device. One that only
  reads (item(), a copy to another device) makes a storage of no bytes. What a kernel took from CUDA's allocator for
  itself meanwhile is one more storage, released at once. Views are not in the log, since a storage has one name.
- MUTATE: an operator that wrote what it was given; of one that made storages too it comes after the CALL, and they
  share the time by their bytes. Players make a copy, so that they can recompute from the old value, and keep the old
  value of a constant: with the optimizer's step inside, the player's peak has parameters and states twice. Record
  forward and backward alone to avoid that.
- RELEASE: before the next operator, of each storage that nobody holds any more. A storage that an operator
  resized is a new one.

The operators are those that reach kernels (below autograd); what torch.compile compiled is not seen, and CUDA graphs
can't be captured meanwhile. Let a step or two run before: the first ones make what stays. On CUDA,
torch.cuda.max_memory_allocated() and its like begin anew with each operator; what they would have said is
`lent_peak_bytes`. """

import argparse
import gc
import gzip
import json
import lzma
import os
import runpy
import shutil
import sys
import threading
import time

# Of these nothing depends on the elements of what they take, or is changed.
_METADATA = frozenset(("size", "stride", "storage_offset", "numel", "dim", "record_stream"))
_METADATA_PREFIXES = ("is_", "sym_")
_STATISTICS = {"running_mean", "running_var"}
_STATISTICS_UPDATES = ("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts", "batch_norm_update_stats")
_COMPRESSED = {".xz": lzma.open, ".gz": gzip.open}


class LogWriter:
    """The lines of a log, in the file at the end of each call: the file of a program that was killed is cut at a line's
    end. One that will be compressed is called PATH.part until then."""

    def __init__(self, path):
        self.path = os.fspath(path)
        self._open_compressed = _COMPRESSED.get(os.path.splitext(self.path)[1])
        self._plain_path = self.path + ".part" if self._open_compressed else self.path
        self._stream = open(self._plain_path, "w", encoding="ascii")
        self._name_count = 0

    def new_name(self):
        self._name_count += 1
        return f"x{self._name_count}"

    def annotate(self, text):
        self._write({"INSTRUCTION": "ANNOTATE", "ANNOTATION": text})

    def constant(self, name, size):
        self._write({"INSTRUCTION": "CONSTANT", "NAME": name}, _memory(name, size))

    def call(self, operator, arguments, results, time_ns):
        """`results`: pairs of a name and its bytes."""
        lines = [{"INSTRUCTION": "CALL", "NAME": operator, "ARGS": arguments, "RESULT": [name for name, _ in results],
                  "TIME": str(time_ns)}]
        for name, size in results:
            lines += [_memory(name, size), {"INSTRUCTION": "ALIAS", "NAME": name, "ALIAS": "-1"}]
        self._write(*lines)

    def mutate(self, operator, arguments, indices, time_ns):
        self._write({"INSTRUCTION": "MUTATE", "NAME": operator, "ARGS": arguments, "MUTATE": indices,
                     "TIME": str(time_ns)})

    def release(self, name):
        self._write({"INSTRUCTION": "RELEASE", "NAME": name})

    def close(self):
        if self._stream.closed:
            return
        self._stream.close()
        if self._open_compressed:
            with open(self._plain_path, "rb") as plain, self._open_compressed(self.path, "wb") as compressed:
                shutil.copyfileobj(plain, compressed)
            os.unlink(self._plain_path)

    def _write(self, *lines):
        self._stream.write("".join(json.dumps(line, sort_keys=True, separators=(",", ":")) + "\n" for line in lines))
        self._stream.flush()


def _memory(name, size):
    return {"INSTRUCTION": "MEMORY", "NAME": name, "MEMORY": str(size)}


class _Storage:
    """A storage that has a name. The weak reference keeps its identity from being given to another one."""

    def __init__(self, name, size, reference):
        self.name, self.size, self.reference = name, size, reference


class _Call:
    """An operator that is about to run: the tensors that it takes, and which of them it may write."""

    def __init__(self):
        self.arguments, self.sizes = [], []  # of storages: names and bytes
        self.lent_bytes = 0                  # by the device's allocator, before
        self.written = []                    # index in arguments, the storage's key, tensor


class Recording:
    """A recording, as record() makes it. Threads: autograd's are recorded with the one that entered; others are not.

    device           what is recorded; None until the first operator
    peak_bytes       the most that the storages in the log had at one time
    other_bytes      of the constant that stands for what no tensor of the program's explains
    lent_peak_bytes  the most that CUDA's allocator was asked for at one time, while operators ran; 0
                     where it does not say
    """

    def __init__(self, path, device=None, all_live=True):
        self.path = os.fspath(path)
        self.device = device
        self.peak_bytes = self.other_bytes = self.lent_peak_bytes = 0
        self._all_live = all_live
        self._has_begun = False
        self._live, self._live_bytes = {}, 0     # storages by their key
        # of operators: which of their arguments they write; which are made of others
        self._writes, self._composites = {}, {}
        self._lock = threading.RLock()
        self._log = self._mode = self._pid = None

    def __enter__(self):
        import torch
        from torch.multiprocessing.reductions import StorageWeakRef
        self._torch, self._weak_reference = torch, StorageWeakRef
        if self.device is not None:
            self.device = torch.empty(0, device=self.device).device  # "cuda" gets its number
        self._log, self._pid = LogWriter(self.path), os.getpid()
        self._log.annotate("START")
        self._mode = _mode(self)
        self._mode.__enter__()
        return self

    def __exit__(self, *exception):
        self._mode.__exit__(*exception)
        with self._lock:
            self._release_dead()
            self._log.close()

    def backward(self):
        """Marks where the backward pass begins."""
        with self._lock:
            self._release_dead()
            self._log.annotate("BACKWARD")

    # ---- operators ----

    def dispatch(self, operator, types, args, kwargs):
        """What the mode does for each operator."""
        if any(_has_own_dispatch(kind, self._torch) for kind in types):
            return NotImplemented  # the subclass's turn; what it does underneath comes here
        if os.getpid() != self._pid or _is_metadata(operator):  # a fork child's operators are not this program's
            return operator(*args, **kwargs)
        if self._is_composite(operator):
            with self._mode:
                return operator._op_dk(self._torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
        with self._lock, self._torch._C.DisableTorchFunction():
            if not self._has_begun:
                self._begin()
            self._release_dead()
            call = self._prepare(operator, args, kwargs)
        self._synchronize()
        call.lent_bytes = self._reset_lent_peak()
        start = time.perf_counter_ns()
        result = operator(*args, **kwargs)
        self._synchronize()
        time_ns = time.perf_counter_ns() - start
        with self._lock, self._torch._C.DisableTorchFunction():
            self._finish(operator, call, result, time_ns)
        return result

    def _is_composite(self, operator):
        """Whether it is made of other operators, as it comes here under inference_mode alone. Decompositions in Python
        are not what would run."""
        if operator not in self._composites:
            self._composites[operator] = hasattr(operator,
                                                 "_schema") and self._torch._C._dispatch_has_kernel_for_dispatch_key(
                operator.name(), "CompositeImplicitAutograd")
        return self._composites[operator]

    def _prepare(self, operator, args, kwargs):
        call = _Call()
        for value, is_written in self._arguments(operator, args, kwargs):
            for part in self._parts(value):
                storage = part.untyped_storage()
                if storage.device != self.device:
                    continue
                if is_written:
                    call.written.append((len(call.arguments), storage._cdata, part))
                known = self._live.get(storage._cdata)
                if known is None or known.size != storage.nbytes():
                    if known:  # resized by none of the operators
                        self._release(known)
                    known = self._add_constant(storage)
                call.arguments.append(known.name)
                call.sizes.append(known.size)
        return call

    def _finish(self, operator, call, result, time_ns):
        made, outgrown, mutated, seen = {}, [], [], set()
        has_result = False
        for part in self._parts(result):
            storage = part.untyped_storage()
            has_result |= storage.device == self.device
            self._find_made(storage, made, outgrown)
        for index, key, part in call.written:
            storage = part.untyped_storage()
            self._find_made(storage, made, outgrown)
            # a storage once, though many views were written
            if storage._cdata == key and key not in made and key not in seen:
                seen.add(key)
                mutated.append(index)
        self._write(operator, call, list(made.values()), mutated, has_result, time_ns)
        for storage in outgrown:
            self._release(storage)

    def _write(self, operator, call, made, mutated, has_result, time_ns):
        name = str(operator).removeprefix("aten.")
        results = [(storage.name, storage.size) for storage in made]
        made_bytes, mutated_bytes = sum(storage.size for storage in made), sum(call.sizes[index] for index in mutated)
        own_bytes = self._own_bytes(call, made_bytes)
        own = None
        if own_bytes or (call.arguments and not (made or mutated or has_result)):
            own = self._log.new_name()
            results.append((own, own_bytes))
        mutate_ns = time_ns * mutated_bytes // ((made_bytes + mutated_bytes) or 1)
        if results:
            self._log.call(name, call.arguments, results, time_ns - mutate_ns)
        if own:
            self._log.release(own)
        if mutated:
            self._log.mutate(name, call.arguments, mutated, mutate_ns if results else time_ns)

    def _own_bytes(self, call, made_bytes):
        """What the operator took for itself while it ran, beside what it made."""
        _, peak = self._lent_bytes()
        self.lent_peak_bytes = max(self.lent_peak_bytes, peak)
        own_bytes = max(0, peak - call.lent_bytes - made_bytes)
        self.peak_bytes = max(self.peak_bytes, self._live_bytes + own_bytes)
        return own_bytes

    def _find_made(self, storage, made, outgrown):
        """Adds the storage to `made` if this operator made it, and what it was before its size changed
        to `outgrown`."""
        if storage.device != self.device:
            return
        known = self._live.get(storage._cdata)
        if known and known.size == storage.nbytes():
            return
        if known:
            outgrown.append(known)
        made[storage._cdata] = self._add(storage)

    def _arguments(self, operator, args, kwargs):
        """Pairs of an argument and whether the operator writes it, in the order of its schema."""
        schema = getattr(operator, "_schema", None)
        if schema is None:  # operators of higher order say nothing
            return [(value, False) for value in (*args, *kwargs.values())]
        if operator not in self._writes:
            self._writes[operator] = [(argument.name, argument.alias_info is not None and argument.alias_info.is_write)
                                      for argument in schema.arguments]
        given = [(name, args[index] if index < len(args) else kwargs.get(name), is_written)
                 for index, (name, is_written) in enumerate(self._writes[operator])]
        if self._updates_statistics(operator):
            is_training = dict((name, value) for name, value, _ in given).get("training", True)
            return [(value, is_training if name in _STATISTICS else is_written) for name, value, is_written in given]
        return [(value, is_written) for _, value, is_written in given]

    def _updates_statistics(self, operator):
        """Whether it is a batch normalization whose schema does not say when it writes its statistics, or
        that it does."""
        names = {name for name, _ in self._writes[operator]}
        if operator._opname.endswith("_functional"):  # it makes new ones
            return False
        return names >= _STATISTICS and ("training" in names or operator._opname in _STATISTICS_UPDATES)

    def _parts(self, value):
        """The tensors with storages in what an operator takes or makes, in order."""
        torch = self._torch
        if isinstance(value, (list, tuple)):
            for element in value:
                yield from self._parts(element)
        elif isinstance(value, dict):
            yield from self._parts(list(value.values()))
        elif isinstance(value, torch.Tensor):
            if value.layout == torch.sparse_coo:
                yield from (value._indices(), value._values())
            elif value.layout in (torch.sparse_csr, torch.sparse_bsr):
                yield from (value.crow_indices(), value.col_indices(), value.values())
            elif value.layout in (torch.sparse_csc, torch.sparse_bsc):
                yield from (value.ccol_indices(), value.row_indices(), value.values())
            elif torch._C._has_storage(value):
                yield value

    def _synchronize(self):
        if self.device.type != "cpu":
            getattr(self._torch, self.device.type).synchronize(self.device)

    # ---- storages ----

    def _add(self, storage):
        """A name for a storage that has none, or has another size now."""
        added = _Storage(self._log.new_name(), storage.nbytes(), self._weak_reference(storage))
        self._live[storage._cdata] = added
        self._count(added.size)
        return added

    def _add_constant(self, storage):
        added = self._add(storage)
        self._log.constant(added.name, added.size)
        return added

    def _count(self, size):
        self._live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self._live_bytes)

    def _release(self, storage):
        self._live_bytes -= storage.size
        self._log.release(storage.name)

    def _release_dead(self):
        dead = [key for key, storage in self._live.items() if storage.reference.expired()]
        for key in dead:
            self._release(self._live.pop(key))

    # ---- what is there before ----

    def _begin(self):
        """Before the first operator: the device, and its constants."""
        self._has_begun = True
        gc.collect()
        found = self._storages_of_program()
        if self.device is None:
            self.device = self._device_of_most(found)
        if not self._all_live:
            return
        for storage in found:
            if storage.device == self.device:
                self._add_constant(storage)
        self.other_bytes = max(0, self._lent_bytes()[0] - self._live_bytes)
        if self.other_bytes:
            self._log.constant(self._log.new_name(), self.other_bytes)
            self._count(self.other_bytes)

    def _storages_of_program(self):
        torch, found = self._torch, {}
        for candidate in gc.get_objects():
            if not issubclass(type(candidate), torch.Tensor) or _has_own_dispatch(type(candidate), torch):
                continue  # a subclass that dispatches has tensors inside, which are found by themselves
            gradient = candidate.grad if candidate.is_leaf else None
            for part in self._parts([candidate, gradient]):
                storage = part.untyped_storage()
                found[storage._cdata] = storage
        return list(found.values())

    def _device_of_most(self, storages):
        sizes = {}
        for storage in storages:
            if storage.device.type not in ("cpu", "meta"):
                sizes[storage.device] = sizes.get(storage.device, 0) + storage.nbytes()
        return max(sizes, key=sizes.get) if sizes else self._torch.device("cpu")

    # ---- what the device's allocator says ----

    def _lent_bytes(self):
        """Bytes that it was asked for and has not got back, now and at most since the last reset; 0 where it
        does not say."""
        if self.device.type != "cuda":
            return 0, 0
        try:
            requested = self._torch.cuda.memory_stats_as_nested_dict(self.device).get("requested_bytes")
        except RuntimeError:  # another allocator is plugged in
            requested = None
        return (requested["all"]["current"], requested["all"]["peak"]) if requested else (0, 0)

    def _reset_lent_peak(self):
        """What is lent now."""
        lent_bytes, peak = self._lent_bytes()
        if peak:
            self._torch.cuda.reset_peak_memory_stats(self.device)
        return lent_bytes


def record(path, device=None, all_live=True):
    """A context manager that records what runs inside into the log `path`; it is the Recording that `with … as` names.

    device    whose storages: "cuda:1", "cpu", …; None: the accelerator with most bytes, else the CPU
    all_live  what was there before is in the log, used or not, so that peaks are the program's

    OSError where the log can't be written. An exception inside closes the log and goes on."""
    return Recording(path, device, all_live)


def _mode(recording):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        supports_higher_order_operators = True

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return recording.dispatch(func, types, args, kwargs or {})

    return Mode()


def _has_own_dispatch(kind, torch):
    return kind.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl


def _is_metadata(operator):
    name = getattr(operator, "_opname", "")
    is_known = name in _METADATA or name.startswith(_METADATA_PREFIXES)
    return is_known or getattr(operator, "namespace", "") in ("prim", "profiler")


# ---- python3 -m varve.oplog ----

class _StepRecorder:
    """Records from the end of the program's optimizer step before the N-th to the N-th's beginning."""

    def __init__(self, path, step):
        self.recording, self.step, self.ended = record(path), step, 0
        self.is_on = self.is_done = False

    def install(self):
        from torch.optim import optimizer
        optimizer.register_optimizer_step_pre_hook(lambda *_: self.before())
        optimizer.register_optimizer_step_post_hook(lambda *_: self.after())

    def before(self):
        if self.is_on:
            self.recording.__exit__(None, None, None)
            self.is_on, self.is_done = False, True
            print(f"varve: the passes before optimizer step {self.step} are in {self.recording.path}: peak"
                  f" {self.recording.peak_bytes} bytes on {self.recording.device}", file=sys.stderr)

    def after(self):
        self.ended += 1
        if self.ended == self.step - 1:
            self.recording.__enter__()
            self.is_on = True


def main():
    parser = argparse.ArgumentParser(prog="python3 -m varve.oplog",
                                     description="Record a training step as an operator log.")
    parser.add_argument("-o", required=True, metavar="LOG", help="the log; .xz and .gz are compressed")
    parser.add_argument("--step", type=int, default=3,
                        help="which optimizer step ends the recording; 2 or more (default: 3)")
    parser.add_argument("script")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.step < 2:
        parser.error("--step: the recording begins at the end of the step before; 2 is the first that can be")
    recorder = _StepRecorder(options.o, options.step)
    recorder.install()
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    try:
        runpy.run_path(options.script, run_name="__main__")
    finally:
        recorder.before()
        if not recorder.is_done:
            print(f"varve: {recorder.ended} optimizer steps ran, none was recorded", file=sys.stderr)


if __name__ == "__main__":
    main()
