# SPDX-License-Identifier: Apache-2.0
"""How much stack one malloc takes below Python frames: lines as of guest_stack.c, for the main thread and another one.
Run alone and under the recorder, the difference is the recorder's. usage: guest_stack.py LIBRARY"""

import ctypes
import sys
import threading

probe = ctypes.CDLL(sys.argv[1]).lib_guest_stack_used
probe.restype = ctypes.c_size_t
probe()


def dive(depth):
    return dive(depth - 1) if depth > 1 else probe()


def other(depth):
    return other(depth - 1) if depth > 1 else probe()


def measure(name):
    for depth in (1, 30, 65, 200):
        for number, call in enumerate((dive, dive, other)):
            print(name, f"call{number}", depth, call(depth), 65536, flush=True)


for _ in range(30):  # past the point where the recorder begins to trust what it sees
    dive(20)
measure("main")
thread = threading.Thread(target=measure, args=("thread",))
thread.start()
thread.join()
