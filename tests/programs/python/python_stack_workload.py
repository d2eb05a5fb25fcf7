# SPDX-License-Identifier: Apache-2.0
"""Programs to be watched by lib_python_stack_probe.so, which is preloaded.

python_stack_workload.py workload       many allocations, threads, interpreters and a child; prints a digest
python_stack_workload.py busy SECONDS   calls, generators and comprehensions without end
"""

import gc
import os
import re
import sys
import threading
import time


def interpreters():
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            return __import__(name)
        except ImportError:
            pass
    return None


def run_in(module, text):
    number = module.create()
    (module.exec if hasattr(module, "exec") else module.run_string)(number, text)
    module.destroy(number)


def workload():
    import asyncio
    import collections
    import hashlib
    import json

    digest = hashlib.sha256()
    tree = {"list": [{"n": i, "text": "ä" * (i % 50)} for i in range(60)], "pi": 3.14}
    for _ in range(8):
        tree["again"] = json.loads(json.dumps(tree))["pi"]
        digest.update(json.dumps(tree, sort_keys=True).encode())
    for word, count in sorted(collections.Counter(re.findall(r"\w+", __doc__)).items()):
        digest.update(("%s%d" % (word, count)).encode())

    async def tick(number):
        await asyncio.sleep(0)
        return number * 2

    async def gather():
        return await asyncio.gather(*[tick(i) for i in range(40)])

    digest.update(repr(asyncio.run(gather())).encode())
    results = {}

    def work(index):
        rows = [[object() for _ in range(30)] for _ in range(30)]
        rows.append(rows)
        results[index] = sum(len(row) for row in rows) + len(hashlib.sha1(bytes(100000)).hexdigest())
        gc.collect()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    digest.update(repr(sorted(results.items())).encode())
    module = interpreters()
    for _ in range(2):
        if module is not None:
            run_in(module, "import collections\nx = [str(i) for i in range(500)]\n")
    sys.settrace(lambda frame, event, argument: None)
    namedtuple = collections.namedtuple("Point", "x y")
    sys.settrace(None)
    digest.update(repr(namedtuple(1, 2)).encode())
    pid = os.fork()
    if pid == 0:
        os._exit(len([str(i) for i in range(1000)]) % 7)
    digest.update(repr(os.waitpid(pid, 0)[1]).encode())
    print(digest.hexdigest())


def busy(seconds):
    def numbers(count):
        for number in range(count):
            yield number

    def fibonacci(number):
        return 1 if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)

    class Point:
        def __init__(self, x):
            self.x = x

        def nearest(self, scale):
            return sorted([3, 1, 2], key=lambda value: value * scale)

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        fibonacci(12)
        sum(numbers(50))
        [Point(i).nearest(i) for i in range(20)]
        list(map(fibonacci, [1, 2, 3]))
    print("done")


if __name__ == "__main__":
    if sys.argv[1] == "busy":
        busy(float(sys.argv[2]))
    else:
        workload()
