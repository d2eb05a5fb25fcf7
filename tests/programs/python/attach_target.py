# SPDX-License-Identifier: Apache-2.0
"""A Python program that is attached to while it runs: threads that hash what they build, over and over, and must find
the same each time. FOLDER/count: allocate COUNT blocks of SIZE bytes by malloc (bytes objects that large are), keep
them, print "kept"; FOLDER/fork: a fork child does the same with blocks of SIZE + 1; FOLDER/quit: print the hash and
the number of wrong ones. Usage: attach_target.py FOLDER COUNT SIZE"""

import hashlib
import os
import sys
import threading
import time

FOLDER, COUNT, SIZE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
answers, wrong = set(), []
before = [bytes(SIZE) for _ in range(100)]  # known to nobody who attaches


def is_there(name):
    return os.path.exists(os.path.join(FOLDER, name))


def build():
    rows = {str(i) * 3: [bytes(i * 10), {"a": i, "b": list(range(i % 17))}] for i in range(200)}
    return hashlib.sha256(repr(sorted(rows.items())).encode()).hexdigest()


def work():
    while not is_there("quit"):
        answer = build()
        if answers and answer not in answers:
            wrong.append(answer)
        answers.add(answer)
        time.sleep(0.002)


def keep_counted(size):
    return [bytes(size) for _ in range(COUNT)]


def main():
    threads = [threading.Thread(target=work, name=f"worker {i}") for i in range(3)]
    for thread in threads:
        thread.start()
    while not answers:
        time.sleep(0.001)
    print("ready", flush=True)
    kept = None
    while not is_there("quit"):
        if is_there("count") and kept is None:
            kept = keep_counted(SIZE)
            before.clear()
            print("kept", len(kept), flush=True)
        if is_there("fork"):
            os.unlink(os.path.join(FOLDER, "fork"))
            child = os.fork()
            if child == 0:
                keep_counted(SIZE + 1)
                os._exit(0)
            print("child", child, os.waitpid(child, 0)[1], flush=True)
        time.sleep(0.005)
    for thread in threads:
        thread.join()
    print("answer", *answers, "wrong", len(wrong), flush=True)


main()
