# SPDX-License-Identifier: Apache-2.0
"""Compares the frames that lib_python_stack_probe.so takes with what sys._getframe says, frame for frame.

python_stack_probe.py check PROBE   every kind of frame, on request and at a real allocation (PROBE preloaded)
"""

import ctypes
import functools
import gc
import os
import re
import sys
import threading
import weakref

sys.dont_write_bytecode = True
from python_stack_workload import interpreters, run_in

BIG = 7654321  # bytes of the allocation that is watched for
cases = []
checks = 0


def case(function):
    cases.append(function)
    return function


def plain(text):
    return re.sub("[\ud800-\udfff]", "\ufffd", text)


def expected():
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        frames.append((plain(code.co_name), plain(code.co_filename), frame.f_lineno or 0))
        frame = frame.f_back
    return frames


def parse(count):
    rows = [line.split("\t") for line in buffer.value.decode("utf-8").splitlines()]
    assert len(rows) == count, (len(rows), count)
    return [(name, file, int(line)) for _, name, file, line in rows], [row[1] for row in rows if row[0] == "1"]


def compare(count, want):
    global checks
    got, entries = parse(count)
    assert got == want, "\n got %r\nwant %r" % (got, want)
    checks += 1
    return entries


def look():
    count, loops, want = probe.probe_capture(buffer, size, 256), probe.probe_entries(), expected()
    entries = compare(count, want)
    if loops > 0:
        assert len(entries) == loops, (loops, entries, want)
    if sys.version_info < (3, 11):
        assert len(entries) == count
    return entries


def allocate():
    if not watching:
        return
    probe.probe_watch(BIG)
    block, want = bytes(BIG), expected()
    compare(probe.probe_watched(buffer, size), want)
    assert len(block) == BIG


@case
def functions():
    def inner():
        look()
        allocate()

    def outer():
        inner()

    outer()
    (lambda: look())()


class Thing:
    def method(self):
        look()

    @staticmethod
    def static():
        look()

    @classmethod
    def of_class(cls):
        look()

    @property
    def value(self):
        return look()

    def __getattr__(self, name):
        look()
        return name


class Made:
    def __init__(self):
        look()
        allocate()


@case
def methods():
    thing = Thing()
    thing.method()
    Thing.static()
    Thing.of_class()
    assert thing.value
    assert thing.missing == "missing"
    for _ in range(200):
        Made()


@case
def generators():
    def numbers():
        yield look()
        allocate()
        yield look()

    def chained():
        yield from numbers()

    for _ in range(40):
        list(chained())
        for _ in numbers():
            look()
    sum(1 for _ in (look() for _ in range(3)))


@case
def coroutines():
    async def leaf():
        look()
        allocate()

    async def branch():
        await leaf()
        async for _ in ticks():
            look()

    async def ticks():
        look()
        yield 1

    for _ in range(20):
        try:
            branch().send(None)
        except StopIteration:
            pass


@case
def comprehensions():
    [look() for _ in range(2)]
    {look() is None for _ in range(2)}
    {i: look() for i in range(2)}
    [[look() for _ in range(2)] for _ in range(2)]


@case
def called_from_c():
    def by_key(value):
        entries = look()
        if sys.version_info >= (3, 11):
            assert entries == ["by_key", "<module>"], entries
        allocate()
        return value

    sorted([3, 1, 2], key=by_key)
    list(map(lambda value: look(), range(2)))
    functools.reduce(lambda left, right: look() and 0, range(3))
    re.sub("a", lambda match: str(bool(look())), "banana")


@case
def class_bodies():
    class Outer:
        look()

        class Inner:
            allocate()
            entries = look()


@case
def lines():
    look(); look()
    result = [
        1,
        look(),
        len(
            look()
        ),
    ]
    assert result
    try:
        raise ValueError
    except ValueError:
        look()
    finally:
        look()
    with threading.Lock():
        look()
    if (len("x") and
            look()):
        pass


@case
def executed():
    scope = {"look": look, "allocate": allocate}
    far = "\n" * 70000 + "def far():\n    look()\n" + "\n" * 300 + "    allocate()\nfar()\n"
    exec(compile(far, "far.py", "exec"), scope)
    exec(compile("look()", "<made up>", "exec"), scope)
    assert eval("look() or 1", scope)
    for name, file in (("größe", "straße.py"), ("名前", "ファイル.py"),
                       ("\U00010330\U00010331", "\U0001f40d.py"), ("plain", "not-utf8-\udcff.py")):
        exec(compile("\n\ndef %s():\n  look()\n  allocate()\n%s()\n" % (name, name), file, "exec"), scope)


@case
def threads():
    failures = []

    def work():
        try:
            for _ in range(20):
                assert look()[-1] in ("_bootstrap", "work"), look()
                [look() for _ in range(2)]
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work_locked, args=(work,)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures


def work_locked(work):
    with turn:  # one buffer for all of them
        work()


@case
def without_gil():
    # A call through CDLL gives the GIL up first: the frames stay this thread's. The other thread has none.
    unlocked = ctypes.CDLL(probe._name)
    count, want = unlocked.probe_capture(buffer, size, 256), expected()
    compare(count, want)
    assert probe.probe_capture_elsewhere(buffer, size, 0) == 0
    look()


@case
def published():
    # What a waiting thread publishes for its helpers get, once, while it lasts; without the innermost frames if so
    # asked.
    def publish(skip):
        probe.varve_python_stack_publish(skip)
        probe.varve_python_stack_publish(0)  # nested: the outer one's frames stay
        probe.varve_python_stack_withdraw()
        count = probe.probe_capture_elsewhere(buffer, size, 1)
        probe.varve_python_stack_withdraw()
        return count

    assert probe.probe_capture_elsewhere(buffer, size, 1) == 0
    count, want = publish(1), expected()
    compare(count, want)
    assert probe.probe_capture_elsewhere(buffer, size, 1) == 0
    assert publish(1000) == 0


@case
def collected():
    class Node:
        def __del__(self):
            look()
            allocate()

    node = Node()
    node.self = node
    watched = Thing()
    reference = weakref.ref(watched, lambda _: look())
    gc.callbacks.append(on_collect)
    del node, watched
    gc.collect()
    gc.callbacks.remove(on_collect)
    assert reference() is None


def on_collect(phase, info):
    look()


@case
def traced():
    events = []

    def trace(frame, event, argument):
        if not events:
            events.append(look())
        return trace

    sys.settrace(trace)
    functions()
    sys.settrace(None)
    assert events
    if hasattr(sys, "monitoring"):
        sys.monitoring.use_tool_id(3, "probe")
        sys.monitoring.register_callback(3, sys.monitoring.events.LINE, lambda code, line: None)
        sys.monitoring.set_events(3, sys.monitoring.events.LINE | sys.monitoring.events.INSTRUCTION)
        functions()
        lines()
        sys.monitoring.set_events(3, 0)
        sys.monitoring.free_tool_id(3)
        functions()


@case
def deep():
    def down(level):
        if level == 0:
            count, want = probe.probe_capture(buffer, size, 40), expected()
            compare(count, want[:40])
            assert len(want) > 100 and count == 40
        else:
            down(level - 1)

    down(100)


# ---- what a memo of the last walk could get wrong: the probe compares its hash with the frames each time ----


@case
def siblings():
    # One after the other at the same address: other code, the same line.
    def first(): look()
    def other(): look()
    def larger(a=1, b=2, c=3):
        d, e, f = c, b, a
        other()
        first()
        return d + e + f

    for _ in range(5):
        for function in (first, other, larger, other, first, larger):
            function()
        first(), other(), first()


@case
def up_and_down():
    def tree(level, branches):
        look()
        for branch in range(branches if level > 0 else 0):
            tree(level - 1, branches)
            look()

    def straight(level):
        look()
        if level > 0:
            straight(level - 1)
        look()

    tree(4, 2)
    for level in (1, 30, 2, 90, 70, 90, 10, 230, 5):
        straight(level)


@case
def resumed_elsewhere():
    def numbers(count):
        for number in range(count):
            look()
            yield number

    def delegating(count):
        yield from numbers(count)

    def resume(generator, level):
        look()
        return resume(generator, level - 1) if level > 0 else next(generator)

    left, right = delegating(12), numbers(12)
    for level in (0, 3, 1, 8, 0, 2):
        resume(left, level)
        resume(right, 8 - level)
        next(left)
        look()
    for generator in (left, right):
        generator.close()


@case
def coroutines_in_turns():
    class Pause:
        def __await__(self):
            look()
            yield

    async def leaf():
        for _ in range(4):
            await Pause()
            look()

    async def branch(level):
        look()
        await (branch(level - 1) if level > 0 else leaf())

    running = [branch(level) for level in (0, 5, 2, 5)]
    while running:
        for coroutine in list(running):
            try:
                coroutine.send(None)
            except StopIteration:
                running.remove(coroutine)
            look()


@case
def thrown_over():
    def fail(level):
        if level == 0:
            look()
            raise KeyError(level)
        try:
            fail(level - 1)
        finally:
            if level % 3 == 0:
                look()

    for level in (20, 7, 40, 1):
        try:
            fail(level)
        except KeyError:
            look()
            fail_again = [look() for _ in range(2)]
    assert fail_again


@case
def code_reused():
    # Code objects that come and go: others at the addresses of those before, with other names in other files.
    seen = {}
    reused = 0
    for number in range(60):
        name, file = "made%02d" % (number % 7), "file%02d.py" % (number % 5)
        scope = {"look": look}
        exec(compile("def %s():\n    look()\n    look()\n%s()\n" % (name, name), file, "exec"), scope)
        address = id(scope[name].__code__)
        reused += seen.get(address, (name, file)) != (name, file)
        seen[address] = (name, file)
        scope.clear()  # else the function, which refers to it, would stay
    assert reused > 10, reused
    # The frame, the code object and the instruction are the same: only the names differ, of which none goes.
    names = [("renamed%02d" % number, "moved%02d.py" % number) for number in range(10)]
    plain_code = compile("look()", "plain.py", "eval")
    for renames_file in (False, True):
        seen = []
        for name, file in names * 2:
            code = plain_code.replace(**({"co_filename": file} if renames_file else {"co_name": name}))
            seen.append(id(code))
            eval(code, globals())
            del code
        assert sys.version_info < (3, 11) or len(set(seen)) < len(seen), seen


@case
def entered_in_turns():
    # From the same instruction into the same frame: with an interpreter loop of its own or without.
    def inner():
        look()

    for call in (inner, functools.partial(inner)) * 5:
        call()


@case
def same_depth_other_lines():
    def loop(times):
        for _ in range(times):
            look()
            if times > 2:
                look(); look()
            loop(0) if times == 0 else look()

    def caller():
        loop(2)
        loop(3)
        for _ in range(2):
            loop(1); loop(1)

    caller()
    caller()


@case
def memo_of_each_thread():
    failures = []

    def work(level, times):
        if level > 0:
            return work(level - 1, times)
        try:
            for _ in range(times):
                with turn:
                    look()
                with turn:
                    allocate()
            assert probe.probe_thread_end() == 1
            with turn:
                look()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(level, 15)) for level in (1, 9, 4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures


@case
def forked():
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            functions()
            threads()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


@case
def subinterpreters():
    module = interpreters()
    if module is None or not watching:
        return
    probe.probe_watch(BIG)
    run_in(module, "def inner():\n    return bytes(%d)\n\nassert inner()\n" % BIG)
    got, _ = parse(probe.probe_watched(buffer, size))
    names = [name for name, _, _ in got]
    assert names[:2] == ["inner", "<module>"] and [line for _, _, line in got[:2]] == [2, 4], got
    look()


if __name__ == "__main__":
    probe = ctypes.PyDLL(sys.argv[2])
    probe.probe_hashes.restype = ctypes.c_ulong
    probe.probe_capture.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint]
    probe.probe_capture_elsewhere.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    probe.probe_watched.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    probe.probe_watch.argtypes = [ctypes.c_size_t]
    probe.probe_watch.restype = None
    size = 1 << 17
    buffer = ctypes.create_string_buffer(size)
    turn = threading.Lock()
    watching = "lib_python_stack_probe" in os.environ.get("LD_PRELOAD", "")
    for function in cases:
        function()
    assert probe.probe_hashes() > checks * 9 // 10
    print("%d checks, %d hashes" % (checks, probe.probe_hashes()))
