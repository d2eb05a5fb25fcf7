#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A workload for `./dev demo`: threads that multiply matrices, churn JSON and dictionaries, and keep a little too much.

What the report of a recording should show: matrices in multiply_matrices() make the peak, churn_json() makes most of
the temporary allocations, and the arrays that remember_forever() keeps are still there when the program ends.
"""

import json
import os
import sys
import threading

os.environ.setdefault("OPENBLAS_NUM_THREADS", "2")

import numpy  # noqa: E402  (the number of BLAS threads must be set before)

MATRIX_SIZE = 384
ROUNDS = 6
forgotten = []


def multiply_matrices(seed):
    """Float work: a few MiB per round, all of it given back."""
    generator = numpy.random.default_rng(seed)
    total = 0.0
    for _ in range(ROUNDS):
        left = generator.random((MATRIX_SIZE, MATRIX_SIZE))
        right = generator.random((MATRIX_SIZE, MATRIX_SIZE))
        total += float((left @ right).trace())
    return total


def churn_json(rows):
    """Many small objects that live shortly."""
    table = {f"key-{row}": {"row": row, "values": list(range(row % 17)), "name": "n" * (row % 64)}
             for row in range(rows)}
    return len(json.loads(json.dumps(table)))


def remember_forever(index):
    """The leak: nobody ever reads or frees these arrays."""
    forgotten.append(numpy.full(4096 + index, index, dtype=numpy.float64))


def worker(index, results):
    results[index] = multiply_matrices(index), churn_json(400)
    for step in range(8):
        remember_forever(index * 8 + step)


def main():
    results = {}
    threads = [threading.Thread(target=worker, args=(index, results), name=f"worker-{index}") for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(f"demo: {len(results)} threads, {sum(count for _, count in results.values())} JSON entries, "
          f"{sum(array.nbytes for array in forgotten)} bytes forgotten")
    sys.stdout.flush()
    # Ends without the interpreter's clean-up, as a killed or crashed program would: what is kept stays visible.
    os._exit(0)


if __name__ == "__main__":
    main()
