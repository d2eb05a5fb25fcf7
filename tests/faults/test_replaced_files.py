#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 3 s
"""Programs and libraries whose files are deleted or replaced while they run: names and lines are those of what ran,
with and without a build id, and never those of the file that has the name now."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

PROGRAM = """
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
void *volatile kept;
__attribute__((noinline)) void OTHER(void) { kept = malloc(1); kept = malloc(2); }
__attribute__((noinline)) static void NAME(void) { kept = malloc(54321); kept = malloc(3); }
int main(int argc, char **argv)
{
    if (strcmp(argv[1], "at once") == 0) {
        argc > 2 ? rename(argv[2], argv[0]) : unlink(argv[0]);
        NAME();
        return 0;
    }
    void *library = dlopen(argv[1], RTLD_NOW);
    void (*function)(void) = (void (*)(void))dlsym(library, "in_library");
    for (int i = 0; i < 2; i++) {
        NAME();
        function();
        while (i == 0 && access("go", F_OK) != 0) {
            usleep(1000);
        }
    }
    return 0;
}
"""
LIBRARY = """
#include <stdlib.h>
void *volatile held;
__attribute__((noinline)) void OTHER(void) { held = malloc(1); held = malloc(2); }
__attribute__((noinline)) static void NAME(void) { held = malloc(65432); held = malloc(3); }
void in_library(void) { NAME(); }
"""
SHIFT = "\n" * 100  # lines of the other build are elsewhere


@recording.unittest.skipUnless(shutil.which("gcc"), "programs are built here")
class ReplacedFiles(recording.Case):
    def build(self, output, source, name, flags, shift=""):
        path = self.write(f"{name}.c", shift + source)
        subprocess.run(["gcc", "-g", "-O1", "-w", "-include", "stdio.h", f"-DNAME={name}", f"-DOTHER=not_{name}",
                        *flags, path, "-o", os.path.join(self.folder, output)], check=True)

    def names(self, size):
        return self.sql("SELECT DISTINCT function, file, line FROM frame WHERE depth = 0 AND callsite_id IN"
                        " (SELECT callsite_id FROM events WHERE kind = 'heap_alloc' AND size = ?)", size)

    def expect(self, size, name, source):
        line = 1 + next(i for i, text in enumerate(source.splitlines()) if "NAME(void) {" in text)
        self.assertEqual(self.names(size), [(name, os.path.join(self.folder, f"{name}.c"), line)])

    def build_all(self, flags):
        self.build("program", PROGRAM, "of_program", flags)
        self.build("library.so", LIBRARY, "of_library", ["-shared", "-fPIC", *flags])
        self.build("other", PROGRAM, "of_other", flags, SHIFT)
        self.build("other.so", LIBRARY, "of_other_library", ["-shared", "-fPIC", *flags], SHIFT)

    def replace(self, name, other):
        path = os.path.join(self.folder, name)
        if other:
            os.replace(os.path.join(self.folder, other), path)
        else:
            os.unlink(path)

    def held(self, process, *names):
        with open(f"/proc/{process.pid}/maps", encoding="utf-8") as maps:
            text = maps.read()
        return all(os.path.join(self.folder, name) in text for name in names)

    def test_while_it_runs(self):
        """From the moment that the collector has read the first call site there."""
        for flags in [], ["-Wl,--build-id=none"]:
            for is_replaced in False, True:
                self.build_all(flags)
                program, library = (os.path.join(self.folder, name) for name in ("program", "library.so"))
                process = recording.start(self.record_command(program, library), cwd=self.folder)
                self.addCleanup(recording.kill_group, process)
                recording.wait_until(lambda: self.held(process, "program", "library.so"), what="files are held")
                self.replace("program", "other" if is_replaced else None)
                self.replace("library.so", "other.so" if is_replaced else None)
                self.write("go")
                self.assertEqual(process.wait(60), 0)
                os.unlink(os.path.join(self.folder, "go"))
                self.open()
                self.expect(54321, "of_program", PROGRAM)
                self.expect(65432, "of_library", LIBRARY)
                os.unlink(self.path)

    def test_by_itself(self):
        """As the first thing that it does, and it ends at once."""
        for flags in [], ["-Wl,--build-id=none"]:
            for other in [], ["other"]:
                self.build_all(flags)
                path = os.path.join(self.folder, "program")
                self.record(path, "at once", *other, cwd=self.folder)
                self.open()
                self.expect(54321, "of_program", PROGRAM)
                os.unlink(self.path)


if __name__ == "__main__":
    recording.main()
