# SPDX-License-Identifier: Apache-2.0
"""Every kind of Python frame: at each look() a block of a size that nothing else has is allocated, and what
sys._getframe says of the stack is noted, to be compared with the recording's.

python_frames.py ANSWER LIBRARY [CASE...]   ANSWER.PID gets {size: [frames, interpreter loops]}; LIBRARY is
                                            lib_python_frames.so
"""

import ctypes
import functools
import gc
import itertools
import json
import os
import re
import sys
import threading
import weakref

sys.dont_write_bytecode = True
HEADER_BYTES = sys.getsizeof(b"")
sizes = itertools.count(300007)  # of blocks
noted = {}  # the texts themselves: by their addresses a recorder tells one code object from the next at its place
agreed = [0, 0, 0]  # hashes that are wrong, right, unknown


def expected():
    frame, frames = sys._getframe(1), []
    while frame is not None:
        code = frame.f_code
        frames.append((code.co_name, code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back
    return frames


def look():
    size = next(sizes)
    block, noted[size] = bytes(size - HEADER_BYTES), (expected(), library.count_loops())
    del block
    agreed[library.memo_agrees()] += 1
    return noted[size]


def look_elsewhere(frames):
    """From a thread that Python does not know, while the caller holds the GIL."""
    size = next(sizes)
    library.allocate_elsewhere(size)
    noted[size] = (frames, 0)
    return size


def functions():
    def inner():
        look()

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


def methods():
    thing = Thing()
    thing.method()
    Thing.static()
    Thing.of_class()
    assert thing.value
    assert thing.missing == "missing"
    for _ in range(200):
        Made()


def generators():
    def numbers():
        yield look()
        yield look()

    def chained():
        yield from numbers()

    for _ in range(40):
        list(chained())
        for _ in numbers():
            look()
    sum(1 for _ in (look() for _ in range(3)))


def coroutines():
    async def leaf():
        look()

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


def comprehensions():
    [look() for _ in range(2)]
    {look() is None for _ in range(2)}
    {i: look() for i in range(2)}
    [[look() for _ in range(2)] for _ in range(2)]


def called_from_c():
    sorted([3, 1, 2], key=lambda value: len(look()))
    list(map(lambda value: look(), range(2)))
    functools.reduce(lambda left, right: look(), range(3))
    re.sub("a", lambda match: str(bool(look())), "banana")


def class_bodies():
    class Outer:
        look()

        class Inner:
            look()


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


def executed():
    scope = {"look": look}
    far = "\n" * 70000 + "def far():\n    look()\n" + "\n" * 300 + "    look()\nfar()\n"
    exec(compile(far, "far.py", "exec"), scope)
    exec(compile("look()", "<made up>", "exec"), scope)
    assert eval("look() or 1", scope)
    for name, file in (("größe", "straße.py"), ("名前", "ファイル.py"),
                       ("\U00010330\U00010331", "\U0001f40d.py"), ("plain", "not-utf8-\udcff.py")):
        exec(compile("\n\ndef %s():\n  look()\n  look()\n%s()\n" % (name, name), file, "exec"), scope)


def threads():
    def work():
        for _ in range(20):
            look()
            [look() for _ in range(2)]

    run_threads([threading.Thread(target=work) for _ in range(3)])


def run_threads(workers):
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def without_gil():
    # A call through CDLL gives the GIL up first: the frames stay this thread's. The other thread has none.
    size = next(sizes)
    memory, noted[size] = ctypes.CDLL(None).malloc(size), (expected(), 0)
    assert memory != 0
    look_elsewhere([])
    look()


def published():
    # What a waiting thread publishes for its helpers get, while it lasts; without the innermost frames if so asked.
    recorder = ctypes.PyDLL(None)
    recorder.varve_python_stack_publish.argtypes = [ctypes.c_uint32, ctypes.c_void_p]

    begin = id(threading.Thread._bootstrap.__code__)

    def publish(skip):
        recorder.varve_python_stack_publish(skip, begin)
        recorder.varve_python_stack_publish(0, None)  # nested: the outer one's frames stay
        recorder.varve_python_stack_withdraw()
        size = look_elsewhere([])
        recorder.varve_python_stack_withdraw()
        return size

    size, want = publish(1), expected()
    noted[size] = (want, 0)
    look_elsewhere([])
    publish(1000)

    # Python that such a helper calls stands inside; a thread that Python started has a beginning of its own, and so
    # has the one that publishes.
    def helper(outside):
        size = next(sizes)
        noted[size] = [library.allocate(size), expected() + outside, 0][1:]  # of one line

    def work(run, outside):
        frames = [recorder.varve_python_stack_publish(0, begin), *expected()][1:]  # of one line
        run(lambda: helper(frames if outside else []))
        recorder.varve_python_stack_withdraw()

    work(lambda call: ctypes.CDLL(sys.argv[2]).call_elsewhere(ctypes.CFUNCTYPE(None)(call)), True)
    work(lambda call: run_threads([threading.Thread(target=call)]), False)
    work(lambda call: call(), False)


def collected():
    class Node:
        def __del__(self):
            look()

    node = Node()
    node.self = node
    watched = Thing()
    reference = weakref.ref(watched, lambda _: look())
    gc.callbacks.append(lambda phase, info: look())
    del node, watched
    gc.collect()
    gc.callbacks.pop()
    assert reference() is None


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


def deep():
    def down(level):
        look() if level == 0 else down(level - 1)

    def through_c(level):
        look() if level == 0 else sorted([level - 1], key=through_c)

    def each(level, stop):  # one frame more and less at a time
        look()
        if level < stop:
            each(level + 1, stop)
            look()

    def each_from(level, start, stop):
        each(0, stop - start) if level == start else each_from(level + 1, start, stop)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20000)
    for level in (400, 401, 310, 1000, 3000, 999, 1001, 5, 3000):  # more than is kept
        down(level)
    down(3000)  # as deep as before, from another line
    through_c(400)
    for start, stop in (250, 330), (1000, 1012), (2995, 3002):
        each_from(0, start, stop)
    threading.stack_size(64 << 20)
    run_threads([threading.Thread(target=down, args=(10000,))])
    threading.stack_size(0)
    sys.setrecursionlimit(limit)


# ---- what a memo of the last walk could get wrong, by whose hash a stack is found ----


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


def entered_in_turns():
    # From the same instruction into the same frame: with an interpreter loop of its own or without.
    def inner():
        look()

    for call in (inner, functools.partial(inner)) * 5:
        call()


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


def memo_of_each_thread():
    def work(level, times):
        if level > 0:
            return work(level - 1, times)
        for _ in range(times):
            look()
            look()

    run_threads([threading.Thread(target=work, args=(level, 15)) for level in (1, 9, 4)])


def forked():
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            noted.clear()
            functions()
            threads()
            answer()
            status = agreed[0]
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def subinterpreters():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = __import__(name)
        except ImportError:
            continue
        size, number = next(sizes), module.create()
        text = "def inner():\n    return bytes(%d)\n\nassert inner()\n" % (size - HEADER_BYTES)
        (module.exec if hasattr(module, "exec") else module.run_string)(number, text)
        module.destroy(number)
        noted[size] = ([("inner", None, 2), ("<module>", None, 4), None], 0)  # any file, and what called it
        return look()


def answer():
    with open("%s.%d" % (sys.argv[1], os.getpid()), "w") as stream:
        stream.write(json.dumps(noted))


if __name__ == "__main__":
    library = ctypes.PyDLL(sys.argv[2])
    library.allocate_elsewhere.argtypes = library.allocate.argtypes = [ctypes.c_size_t]
    cases = (functions, methods, generators, coroutines, comprehensions, called_from_c, class_bodies, lines,
             executed, threads, without_gil, published, collected, traced, deep, siblings, up_and_down,
             resumed_elsewhere, coroutines_in_turns, thrown_over, code_reused, entered_in_turns,
             same_depth_other_lines, memo_of_each_thread, forked, subinterpreters)
    for function in cases:
        if len(sys.argv) < 4 or function.__name__ in sys.argv:
            function()
    assert agreed[0] == 0 and agreed[2] < 100, agreed
    answer()
