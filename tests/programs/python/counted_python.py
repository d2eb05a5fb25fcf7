#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Threads that allocate and count, for kills: counted_python.py SECONDS THREADS FILE

Each thread makes blocks of 100,001 to 101,000 bytes, frees each when it has made the next, and stores after every one
how many it has made into FILE: struct counter[THREADS] as in churn.c (thread id, count, 48 unused bytes). FILE
survives SIGKILL. """

import mmap
import os
import sys
import threading
import time

WORDS = 8  # of a counter
SIZE = 100000


def work(words, index, end):
    words[index * WORDS] = threading.get_native_id()
    count = 0
    while time.monotonic() < end:
        block = bytearray(SIZE + count % 1000)  # one byte more is allocated
        count += 1
        words[index * WORDS + 1] = count
    del block


def main():
    seconds, count, path = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    with open(path, "wb+") as stream:
        os.ftruncate(stream.fileno(), 64 * WORDS * 8)
        words = memoryview(mmap.mmap(stream.fileno(), 64 * WORDS * 8)).cast("Q")
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=work, args=(words, index, end)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
