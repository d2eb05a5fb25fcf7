# SPDX-License-Identifier: Apache-2.0
"""A service with one leak, or none: leaky_service.py list|dict|ctypes|none SEED. Around it is what looks like leaks
and is none: modules, a table that is made first and kept, a cache that fills and then only replaces, a queue that
swings, a pool of threads, and much that lives for a moment. Lines that leak are marked."""

import collections
import ctypes
import json
import random
import re
import sys
import threading
import time

STEPS = 600

kind = sys.argv[1]
random.seed(int(sys.argv[2]))
every = 1 + int(sys.argv[2]) % 3

history = []
answers = {}
table = {}
pages = collections.OrderedDict()
queue = collections.deque()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def note(step):
    history.append((step, "request %d" % step, float(step)))  # leak: list


def answer(step):
    answers["question %d" % step] = ["answer", str(step) * 3]  # leak: dict


def take_buffer():
    return libc.malloc(random.randrange(50, 5000))  # leak: ctypes


def take_and_return_buffer():
    libc.free(libc.malloc(random.randrange(50, 5000)))


def load_table():
    for number in range(3000):
        table["key %d" % number] = [number, "x" * random.randrange(50, 900)]


def read_page(number):
    if number not in pages and len(pages) >= 150:
        pages.popitem(last=False)
    pages[number] = bytes(random.randrange(1000, 3000))


def swing_queue(step):
    wanted = 20 + step * 7 % 50
    while len(queue) > wanted:
        queue.popleft()
    while len(queue) < wanted:
        queue.append("q" * random.randrange(40, 900))


def parse(step):
    text = json.dumps({"step": step, "words": [str(random.random()) for _ in range(40)]})
    return len(json.loads(text)["words"]) + len(re.findall(r"[0-9]+", text))


def work(turns, is_over):
    """As much as the steps that it is given, however busy the machine is."""
    buffers = [b""] * 32
    while turns.acquire() and not is_over.is_set():
        buffers[random.randrange(32)] = bytes(random.randrange(200, 2000))


def main():
    is_over = threading.Event()
    turns = threading.Semaphore(0)
    pool = [threading.Thread(target=work, args=(turns, is_over)) for _ in range(3)]
    load_table()
    for thread in pool:
        thread.start()
    for step in range(STEPS):
        parse(step)
        read_page(random.randrange(600))
        swing_queue(step)
        take_and_return_buffer()
        if step % every == 0:
            if kind == "list":
                note(step)
            elif kind == "dict":
                answer(step)
            elif kind == "ctypes":
                take_buffer()
        turns.release(2)
        time.sleep(0.0005)
    is_over.set()
    turns.release(len(pool))
    for thread in pool:
        thread.join()


main()
