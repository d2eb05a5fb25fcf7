#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
"""Programs that would fail, or print something, with the recorder in their environment, started by a recorded program:
of another C library, for another machine, with a sanitizer that must come first, or that can't reach the recorder. They
run as they do without, get what else is in LD_PRELOAD, and are named."""

import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

WAYS = recording.program("run_ways")
OF_USER = recording.program("lib_callback.so")  # in the user's own LD_PRELOAD
EVERY_WAY = ("execv", "execve", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "execveat",
             "execveat_folder", "syscall", "vfork", "posix_spawn", "posix_spawnp", "system", "popen")

# Prints its LD_PRELOAD. Without any library: as a program of 32 bits, and as a loader in the place of ld.so.
SHOWS = r"""
#ifdef __i386__
__asm__(".globl _start\n_start:\n mov %esp, %eax\n push %eax\n call begin\n");
static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c) : "memory");
    return result;
}
enum { WRITE = 4, EXIT = 1 };
#else
__asm__(".globl _start\n_start:\n mov %rsp, %rdi\n and $-16, %rsp\n call begin\n");
static long call(long number, long a, long b, long c)
{
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}
enum { WRITE = 1, EXIT = 60 };
#endif
void begin(char **stack)
{
    static const char name[] = "LD_PRELOAD=";
    for (char **entry = stack + (long)stack[0] + 2; *entry; entry++) {
        unsigned same = 0, length = 0;
        while (same < sizeof(name) - 1 && (*entry)[same] == name[same]) {
            same++;
        }
        while ((*entry)[length]) {
            length++;
        }
        if (same == sizeof(name) - 1) {
            call(WRITE, 1, (long)*entry, length);
            call(WRITE, 1, (long)"\n", 1);
        }
    }
    call(WRITE, 1, (long)"ran\n", 4);
    call(EXIT, 0, 0, 0);
}
"""
PRINTS = r"""
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    char *list = getenv("LD_PRELOAD");
    void *volatile block = malloc(1000);
    free(block);
    if (argc > 1) {
        execv(argv[1], argv + 1);
    }
    if (list != NULL) {
        printf("LD_PRELOAD=%s\n", list);
    }
    puts("ran");
    return 0;
}
"""


class Case(recording.Case):
    def build(self, source, name, *compiler):
        if shutil.which(compiler[0]) is None:
            self.skipTest(f"there is no {compiler[0]}")
        program = os.path.join(self.folder, name)
        path = self.write(name + ".c", source)
        built = subprocess.run([*compiler, "-O1", "-o", program, path], check=False, capture_output=True, text=True)
        if built.returncode != 0:
            self.skipTest(f"{' '.join(compiler)} makes no such program here: {built.stderr[-200:]}")
        return program

    def other_machine(self):
        program = self.build(SHOWS, "of32", "gcc", "-m32", "-nostdlib", "-static", "-fno-pie", "-no-pie",
                             "-ffreestanding", "-fno-stack-protector")
        try:
            status = recording.run([program]).returncode
        except OSError as error:
            self.skipTest(f"this kernel runs no 32-bit programs: {error}")
        if status != 0:
            self.skipTest(f"this kernel runs no 32-bit programs: status {status}")
        return program

    def other_loader(self):
        loader = self.build(SHOWS, "ld-linux-other.so.1", "gcc", "-nostdlib", "-static-pie", "-fPIE", "-ffreestanding",
                            "-fno-stack-protector")
        return self.build(PRINTS, "of_other_loader", "gcc", f"-Wl,--dynamic-linker={loader}")

    def musl(self):
        return self.build(PRINTS, "of_musl", "musl-gcc")

    def sanitized(self):
        return self.build(PRINTS, "of_sanitizer", "gcc", "-fsanitize=address")

    def run_and_list(self, *command, **more):
        """(path, reason, count) of what could not be recorded; nothing else is lost, and nothing else said."""
        outcome = self.record(*command, options=recording.PLAIN, **more)
        self.assert_finished()
        self.assert_conserved()
        said = [line for line in outcome.err.splitlines() if not line.startswith("varve: ")]
        self.assertEqual(said, [], outcome)
        return outcome, self.sql("SELECT path, reason, count FROM unrecorded_program ORDER BY path")


class Ways(Case):
    """In every way, from one shell."""

    def check(self, program, reason, of_user=None):
        script = """
            [ -z "$1" ] || export LD_PRELOAD="$LD_PRELOAD:$1"
            for way in $2; do
                "$3" $way "$4" || echo "$way: $?"
            done"""
        outcome, rows = self.run_and_list("sh", "-c", script, "sh", of_user or "", " ".join(EVERY_WAY), WAYS, program)
        kept = f"LD_PRELOAD={of_user}\n" if of_user else ""
        self.assertEqual(outcome.out, f"{kept}ran\n" * len(EVERY_WAY))
        self.assertEqual(rows, [(program, reason, len(EVERY_WAY))])

    def test_other_machine(self):
        self.check(self.other_machine(), "for another machine", OF_USER)

    def test_other_loader(self):
        self.check(self.other_loader(), "another C library", OF_USER)

    def test_musl(self):
        self.check(self.musl(), "another C library")

    def test_sanitizer(self):
        self.check(self.sanitized(), "a sanitizer that must come first")

    def test_searched_and_scripts(self):
        """Along PATH; as the interpreter of a script; as the loader of a file without any magic, through the shell."""
        program = self.other_loader()
        script = self.write("script", f"#!{program} argument\n", 0o755)
        chain = self.write("chain", f"#! {script}\n", 0o755)
        plain = self.write("plain", f"{program}\n", 0o755)
        environment = dict(os.environ, PATH=f"/nonexistent:{self.folder}:{os.environ['PATH']}")
        outcome, rows = self.run_and_list(
            "sh", "-c", f"""{WAYS} execvp of_other_loader; {WAYS} execlp of_other_loader; {WAYS} posix_spawnp chain
                cd {self.folder}; {WAYS} execve ./of_other_loader; {WAYS} execv {script}; {WAYS} vfork ./chain
                {WAYS} execvp {plain}; {WAYS} execlp plain; exit 0""", env=environment)
        self.assertEqual(outcome.out, "ran\n" * 8)
        self.assertEqual(rows, [(program, "another C library", 8)])

    def test_loader_as_a_command(self):
        loader = "/lib/ld-musl-x86_64.so.1"
        if not os.path.exists(loader):
            self.skipTest("there is no musl")
        outcome, rows = self.run_and_list("sh", "-c", f"{loader} {self.musl()}; exit 0")
        self.assertEqual(outcome.out, "ran\n")
        self.assertEqual(rows, [(loader, "another C library", 1)])

    def test_grandchild(self):
        """What such a program starts is not recorded either, and is not seen."""
        hello = self.build(PRINTS, "hello", "gcc")
        for make in (self.musl, self.sanitized):
            with self.subTest(make=make.__name__):
                program = make()
                outcome, rows = self.run_and_list("sh", "-c", f"{program} {hello}; exit 0")
                self.assertEqual(outcome.out, "ran\n")
                self.assertEqual([row[0] for row in rows], [program])


class Environments(Case):
    def test_failed(self):
        """An exec that fails: errno, and the environment of the program, are as before."""
        program = self.other_loader()
        code = f"""if True:
            import ctypes, os
            getenv = ctypes.CDLL(None).getenv
            getenv.restype = ctypes.c_char_p
            before = getenv(b"LD_PRELOAD")
            for path, last in (({program!r}, "y" * 5000000), ("/nonexistent", "y"), ("/etc/passwd", "y")):
                try:
                    os.execv(path, ["x", last])
                except OSError as error:
                    print(error.errno, getenv(b"LD_PRELOAD") == before and b"libvarve_preload" in before)
            os.execv({program!r}, ["x"])"""
        outcome, rows = self.run_and_list("/usr/bin/python3", "-S", "-c", code)
        self.assertEqual(outcome.out, "7 True\n2 True\n13 True\nran\n")
        self.assertEqual(rows, [(program, "another C library", 1)])

    def test_many_variables(self):
        """More than a page of them, from a vfork child and on a small stack too."""
        program = self.other_loader()
        environment = dict(os.environ, **{f"V{i}": "x" for i in range(3000)})
        script = f"for way in execve vfork posix_spawn small_stack execvp; do {WAYS} $way {program}; done; exit 0"
        outcome, rows = self.run_and_list("sh", "-c", script, env=environment)
        self.assertEqual(outcome.out, "ran\n" * 5)
        self.assertEqual(rows, [(program, "another C library", 5)])

    def test_without_session(self):
        """The recorder is in the environment, and there is no recording any more."""
        program = self.other_loader()
        outcome, rows = self.run_and_list("sh", "-c", f"unset VARVE_SESSION; {WAYS} execv {program};"
                                                      f" {WAYS} posix_spawn {program}; exit 0")
        self.assertEqual(outcome.out, "ran\nran\n")
        self.assertEqual(rows, [(WAYS, "environment without the recorder", 2)])

    def test_sanitizer_of_user(self):
        """In LD_PRELOAD: behind the recorder it would end the program, before it it does not."""
        hello = self.build(PRINTS, "hello", "gcc")
        self.sanitized()
        library = subprocess.run(["gcc", "-print-file-name=libasan.so"], check=True, capture_output=True,
                                 text=True).stdout.strip()
        run = f"{WAYS} execv {hello}"
        _, rows = self.run_and_list("sh", "-c", 'export ASAN_OPTIONS=detect_leaks=0;'
                                                f' LD_PRELOAD="$LD_PRELOAD:{library}" {run};'
                                                f' LD_PRELOAD="{library}:$LD_PRELOAD" {run}; exit 0')
        self.assertEqual(rows, [(WAYS, "a sanitizer that must come first", 1)])

    def test_recorder_out_of_reach(self):
        """Of another user: the loader would say that it can't be opened."""
        self.need_root("only root can become another user")
        folder = os.path.join(self.folder, "bin")
        os.mkdir(folder, 0o700)
        for name in os.listdir(os.path.dirname(recording.VARVE)):
            if name == "varve" or name.startswith("lib") and ".so" in name:
                shutil.copy(os.path.join(os.path.dirname(recording.VARVE), name), folder)
        code = "import subprocess; subprocess.run(['/bin/echo', 'ran'], user=65534, check=True)"
        outcome = recording.run([os.path.join(folder, "varve"), "record", "-o", self.path, *recording.PLAIN, "--",
                                 "/usr/bin/python3", "-S", "-c", code])
        self.assertEqual(outcome.out, "ran\n")
        self.assertNotIn("ld.so", outcome.err)
        self.assertIn("could not be recorded: /bin/echo (recorder or recording not within reach)", outcome.err)


class Started(Case):
    """By `varve record` itself: refused, with what helps."""

    def test_refused(self):
        for make, word in ((self.musl, "another C library"), (self.other_loader, "another C library"),
                           (self.sanitized, "ASAN_OPTIONS=verify_asan_link_order=0")):
            with self.subTest(make=make.__name__):
                self.assert_refused(recording.run(self.record_command(make())), word)


if __name__ == "__main__":
    recording.main()
