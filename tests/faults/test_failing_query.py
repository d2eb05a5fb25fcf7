#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 6 s, full 60 s
# Only with an unsanitized command: a sanitized library does not load into a plain Python
"""Allocations of libvarve_query.so fail, and of SQLite for it, one after the other within one Python: the question is a
TraceError, or answered as if nothing had been; Python goes on, and so do questions that come after."""

import json
import os
import sys
import unittest.mock

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import failing_malloc  # noqa: E402
import recording  # noqa: E402

# pyarrow stands in for itself: what it would import is read to the end here.
QUESTIONS = """
import collections, ctypes, json, mmap, struct, sys, types

def read(address):
    stream = reading._Stream.from_address(address)
    get_next = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(stream.get_next)
    release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    get_last_error = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(stream.get_last_error)
    rows, error = 0, None
    while error is None:
        array = (ctypes.c_int64 * 10)()
        if get_next(address, ctypes.addressof(array)) != 0:
            error = get_last_error(address).decode()
        elif array[8] == 0:
            break
        else:
            rows += array[0]
            release(array[8])(ctypes.addressof(array))
    release(stream.release)(address)
    if error is not None:
        raise reading.TraceError(error)
    return rows

sys.modules["pyarrow"] = types.SimpleNamespace(RecordBatchReader=types.SimpleNamespace(_import_from_c=read))
from varve import reading

path, steps_path, most = sys.argv[1:]
with open(steps_path, "r+b") as file:
    steps = mmap.mmap(file.fileno(), 16)

def ask(number):
    # (answer, allocations made); `number`: which of them fails, 0: none
    before = struct.unpack_from("Q", steps, 8)[0]
    struct.pack_into("Q", steps, 0, before + number if number > 0 else 0)
    try:
        answer = reading.stream(path, "SELECT id, function, ?, 2.5 FROM symbol", ["text"], batch_rows=7)
    except reading.TraceError as error:
        answer = str(error)
    struct.pack_into("Q", steps, 0, 0)
    return answer, struct.unpack_from("Q", steps, 8)[0] - before

rows, count = ask(0)
answers = collections.Counter(ask(number)[0] for number in range(1, count + 1, 1 + count // int(most)))
print(json.dumps([rows, list(answers.items()), ask(0)[0]]))
"""


class FailingQuery(failing_malloc.Case):
    def play(self, library, most):
        """About `most` of the allocations of `library`, spread evenly."""
        path = os.path.join(self.folder, "trace.db")
        self.varve("record", "-q", "-o", path, "--", recording.program("churn"), "--ops", "100")
        environment = {"VARVE_TESTS_FAIL_CALLERS": library, "VARVE_BUILD_DIR": os.path.dirname(recording.VARVE),
                       "PYTHONPATH": os.path.join(recording.ROOT, "notebooks")}
        with unittest.mock.patch.dict(os.environ, environment):
            outcome, _ = self.run_failing(0, False, sys.executable, "-c", QUESTIONS, path,
                                          os.path.join(self.folder, "steps"), str(most),
                                          name=os.path.basename(sys.executable))
        self.assertEqual((outcome.returncode, outcome.err), (0, ""), outcome)
        rows, answers, afterwards = json.loads(outcome.out)
        self.assertGreater(rows, 7)
        self.assertEqual(afterwards, rows)
        refused = [(answer, number) for answer, number in answers if answer != rows]
        for answer, _ in refused:
            self.assertIn("memory", str(answer), answers)
        self.assertGreater(sum(number for _, number in refused), 10, answers)

    def test_of_the_library(self):
        self.play("libvarve_query.so", 1000)

    def test_of_sqlite(self):
        self.play("libsqlite3.so.0", 500 if recording.IS_FULL else 20)


if __name__ == "__main__":
    recording.main()
