#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 8 s
"""Programs and interceptors with system calls of their own: the recorder calls none of them, whatever stands in the C
library's place, and is no cancellation point."""

import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

PAIRS = 1000
STACKS = ("none", "native", "python", "all")
SANITIZED = r"""
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
static void *work(void *unused)
{
    for (long i = 0; i < 1000; i++) {
        char *volatile memory = malloc(1234);
        memory[0] = 1;
        free(memory);
    }
    return unused;
}
int main(void)
{
    pthread_t thread;
    work(NULL);
    if (pthread_create(&thread, NULL, work, NULL) != 0 || pthread_join(thread, NULL) != 0) {
        return 1;
    }
    puts("{\"pairs\":2000}");
    return 0;
}
"""


class Guest(recording.Case):
    def check(self, *command, options=()):
        """Unharmed and complete."""
        outcome = self.record(*command, options=options)
        self.open()
        said = json.loads(outcome.out)
        self.assertEqual(self.pairs(1234), (said["pairs"], said["pairs"]), outcome)
        self.assertIn("nothing lost", outcome.err)
        return said


class OwnCalls(Guest):
    def test_program_with_its_own(self):
        for stacks in STACKS:
            with self.subTest(stacks=stacks):
                said = self.check(recording.program("own_calls"), str(PAIRS), options=["--stacks", stacks])
                self.assertEqual(said, {"pairs": PAIRS, "calls": 0})

    def test_wrappers_that_are_not_ready(self):
        """The library comes behind the recorder's, and the recorder is called first, by the loader."""
        wrappers = recording.program("lib_late_wrappers.so")
        for stacks in STACKS:
            with self.subTest(stacks=stacks):
                self.check("bash", "-c", f'LD_PRELOAD="$LD_PRELOAD:{wrappers}" exec "$@"', "bash",
                           recording.program("cancelled"), str(PAIRS), options=["--stacks", stacks])

    def test_thread_with_a_pending_cancel(self):
        """A ring of 64 records: calls of the recorder in the midst of it, of every kind."""
        for policy in recording.POLICIES:
            with self.subTest(policy=policy):
                command = recording.program("cancelled"), "20000"
                options = ["--ring-size", "4K", "--overflow", policy]
                said = (self.check(*command, options=options) if policy != "drop"
                        else json.loads(self.record(*command, options=options).out))
                self.assertEqual(said, {"pairs": 20000, "cancelled": True, "errno_changed": False})
                self.open()
                self.assert_conserved()


class Sanitized(Guest):
    def build(self, compiler, *flags):
        if shutil.which(compiler) is None:
            self.skipTest(f"there is no {compiler}")
        source, program = self.write("program.c", SANITIZED), os.path.join(self.folder, "sanitized")
        built = subprocess.run([compiler, "-O1", "-pthread", *flags, "-o", program, source], check=False,
                               capture_output=True, text=True)
        if built.returncode != 0 or recording.run([program]).returncode != 0:
            self.skipTest(f"{compiler} {' '.join(flags)} makes no program that runs: {built.stderr[-200:]}")
        return program

    def check_linked_in(self, *arguments):
        """An allocator of the program's own, which nobody can stand in front of: unharmed, and said."""
        for stacks in STACKS:
            outcome = self.record(self.build(*arguments), options=["--stacks", stacks])
            self.assertEqual(json.loads(outcome.out), {"pairs": 2000})
            self.assertNotIn("nothing lost", outcome.err)

    def check_shared(self, *arguments):
        for stacks in STACKS:
            with self.subTest(stacks=stacks):
                self.check(self.build(*arguments), options=["--stacks", stacks])

    def test_address_linked_in(self):
        self.check_linked_in("clang", "-fsanitize=address")

    def test_thread_linked_in(self):
        self.check_linked_in("clang", "-fsanitize=thread")

    def test_address_shared(self):
        os.environ["ASAN_OPTIONS"] = "verify_asan_link_order=0"
        self.addCleanup(os.environ.pop, "ASAN_OPTIONS")
        self.check_shared("gcc", "-fsanitize=address")

    def test_thread_shared(self):
        self.check_shared("gcc", "-fsanitize=thread")


if __name__ == "__main__":
    recording.main()
