#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s
"""Programs that the recorder can't be loaded into are named, with the reason and how often they ran, whoever runs
them and however; a program that loads the recorder and allocates nothing, and an exec that fails, are no loss."""

import json
import os
import pwd
import shutil
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

STATIC = recording.program("static_hello")
HELLO = "hello from a static program\n"
WAYS = recording.program("run_ways")
NO_RECORDER = "environment without the recorder"


class Case(recording.Case):
    def run_and_list(self, *command, may_be_unattached=False, **more):
        """(path, reason, count) of what could not be recorded; the sums agree, and nothing else is lost."""
        outcome = self.record(*command, options=recording.PLAIN, **more)
        self.assert_finished()
        self.assert_conserved()
        loss = dict(self.sql("SELECT name, value FROM data_loss"))
        named = self.sql("SELECT name FROM sqlite_master WHERE name = 'unrecorded_program'") != []
        rows = self.sql("SELECT path, reason, count FROM unrecorded_program ORDER BY path") if named else []
        self.assertEqual(loss.pop("processes_unrecorded", 0), sum(row[2] for row in rows), rows)
        if may_be_unattached:
            loss = {name: value for name, value in loss.items() if not name.endswith("_unattached")}
        self.assertEqual(loss, {})
        said = [line for line in outcome.err.splitlines() if f"next: varve report {self.path}" in line]
        self.assertEqual(["nothing lost" in line for line in said], [not rows], outcome)
        for path, reason, count in rows[:1] if len(rows) == 1 else []:
            self.assertIn(f"1 program could not be recorded: {path} ({reason})" + (f" ×{count:,}" if count > 1 else ""),
                          outcome.err)
        return outcome, rows


class Ways(Case):
    """A static program, run in every way."""

    def expect_static(self, *command, count=1, **more):
        outcome, rows = self.run_and_list(*command, **more)
        self.assertEqual(rows, [(STATIC, "statically linked", count)])
        return outcome

    def test_c_library(self):
        for way in ("execv", "execve", "execvp", "execvpe", "execl", "execlp", "execle", "fexecve", "vfork",
                    "posix_spawn", "posix_spawnp", "system", "popen"):
            with self.subTest(way=way):
                self.assertEqual(self.expect_static(WAYS, way, STATIC).out, HELLO)

    def test_searched(self):
        """Found along PATH, or relative to a folder: named in full."""
        environment = dict(os.environ, PATH="/nonexistent:" + os.path.dirname(STATIC) + ":" + os.environ["PATH"])
        for way in ("execvp", "execvpe", "execlp", "posix_spawnp"):
            with self.subTest(way=way):
                self.expect_static(WAYS, way, "static_hello", env=environment)
        self.expect_static(WAYS, "execv", "./static_hello", cwd=os.path.dirname(STATIC))

    def test_shells(self):
        for shell in ("sh", "bash"):
            if not shutil.which(shell):
                continue
            with self.subTest(shell=shell):
                self.expect_static(shell, "-c", f"for i in 1 2 3 4 5; do {STATIC}; done; exit 0", count=5)

    def test_make(self):
        if not shutil.which("make"):
            self.skipTest("no make")
        self.write("Makefile", f"all: a b c\na b c:\n\t@{STATIC}\n")
        self.expect_static("make", "-s", "-j2", "-C", self.folder, count=3)

    def test_python(self):
        for name, statement in (("subprocess", "subprocess.run([p], check=True)"), ("system", "os.system(p)"),
                                ("posix_spawn", "os.waitpid(os.posix_spawn(p, [p], os.environ), 0)"),
                                ("no vfork", "subprocess.run([p], check=True, preexec_fn=lambda: None)")):
            with self.subTest(name):
                self.expect_static("/usr/bin/python3", "-S", "-c", f"import os, subprocess; p = '{STATIC}';"
                                                                   f" {statement}")

    def test_script(self):
        """Of a script it is the interpreter that can't be recorded."""
        self.expect_static(WAYS, "execv", self.write("script", f"#! {STATIC} argument\n", 0o755))


class Reasons(Case):
    def test_environment(self):
        for path, count, *command in (
                ("/bin/ls", 1, "env", "-i", "/bin/ls", "/"),
                ("/bin/true", 4, "/usr/bin/python3", "-S", "-c", "import subprocess\n"
                 "for i in range(4): subprocess.run(['/bin/true'], env={'A': 'b'}, check=True)"),
                ("/bin/ls", 1, "sh", "-c", "unset LD_PRELOAD; /bin/ls / > /dev/null; exit 0")):
            self.assertEqual(self.run_and_list(*command)[1], [(path, NO_RECORDER, count)])

    def test_other_user(self):
        """su and runuser: the shell of another user can't reach the recording, and neither can what forks it."""
        self.need_root("only root can become another user")
        for tool in ("su", "runuser"):
            if not shutil.which(tool):
                continue
            with self.subTest(tool=tool):
                outcome, rows = self.run_and_list(
                    tool, "-s", "/bin/sh", "-c", "echo done", "nobody", may_be_unattached=True)
                self.assertIn("done\n", outcome.out)
                self.assertIn("/bin/sh", [row[0] for row in rows])

    def test_kept_capabilities(self):
        """setpriv can still reach the recording when it looks; what it runs can't."""
        self.need_root("only root can become another user")
        if not shutil.which("setpriv"):
            self.skipTest("there is no setpriv")
        _, rows = self.run_and_list("setpriv", "--reuid", "65534", "--clear-groups", "/bin/true")
        self.assertEqual(rows, [("/bin/true", "recorder or recording not within reach", 1)])

    def test_setuid(self):
        self.need_root("only root can make a setuid program of another user")
        if os.statvfs(self.folder).f_flag & os.ST_NOSUID:
            self.skipTest("the temporary folder is mounted nosuid")
        for mode, reason in ((0o4755, "setuid"), (0o2755, "setgid")):
            with self.subTest(reason):
                path = shutil.copy("/bin/true", os.path.join(self.folder, reason))
                os.chown(path, 65534, 65534)
                os.chmod(path, mode)
                _, rows = self.run_and_list("sh", "-c", f"{path}; {path}; exit 0")
                self.assertEqual(rows, [(path, reason, 2)])

    def test_capabilities(self):
        """Only those who are not root gain by them."""
        self.need_root("only root can give a file capabilities")
        nobody = pwd.getpwnam("nobody")
        folder = self.copy_recorder()
        path = shutil.copy("/bin/true", os.path.join(self.folder, "capable"))
        try:
            os.setxattr(path, "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 10, 0, 0, 0))
        except OSError as error:
            self.skipTest(f"no file capabilities here: {error}")
        os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
        outcome = recording.run([os.path.join(folder, "varve"), "record", "-o", self.path, *recording.PLAIN, "--", "sh",
                                 "-c", f"{path}; exit 0"], user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn(f"1 program could not be recorded: {path} (file capabilities)", outcome.err)

    def copy_recorder(self):
        """Where anybody can run it."""
        folder = os.path.join(self.folder, "bin")
        os.mkdir(folder)
        os.chmod(self.folder, 0o755)
        for name in os.listdir(os.path.dirname(recording.VARVE)):
            if name == "varve" or name.startswith("lib") and ".so" in name:
                shutil.copy(os.path.join(os.path.dirname(recording.VARVE), name), folder)
        return folder

    def test_other_machine(self):
        """A 32-bit program that only exits."""
        code = b"\xb8\x01\x00\x00\x00\x31\xdb\xcd\x80"  # mov $1, %eax; xor %ebx, %ebx; int $0x80
        base = 0x08048000
        header = struct.pack("<16sHHIIIIIHHHHHH", b"\x7fELF\x01\x01\x01", 2, 3, 1, base + 84, 52, 0, 0, 52, 32, 1, 0, 0,
                             0)
        segment = struct.pack("<IIIIIIII", 1, 0, base, base, 84 + len(code), 84 + len(code), 5, 4096)
        path = self.write("small", header + segment + code, 0o755)
        try:
            status = recording.run([path]).returncode
        except OSError as error:
            self.skipTest(f"this kernel runs no 32-bit programs: {error}")
        if status != 0:
            self.skipTest(f"this kernel runs no 32-bit programs: status {status}")
        _, rows = self.run_and_list("sh", "-c", f"{path}; exit 0")
        self.assertEqual(rows, [(path, "for another machine", 1)])

    def test_other_session(self):
        """What an inner recording takes is not recorded by the outer one."""
        if recording.IS_SANITIZED:
            self.skipTest("a sanitized varve can't have a library preloaded")
        inner = os.path.join(self.folder, "inner.db")
        _, rows = self.run_and_list(recording.VARVE, "record", "-o", inner, "--", recording.program("burst"), "10")
        self.assertEqual(rows, [(recording.program("burst"), "recorded by another session", 1)])

    def test_killed_child(self):
        """How a child of the program ended nobody says: it is named in words that hold."""
        library = recording.program("lib_ends_early.so")
        _, rows = self.run_and_list("sh", "-c", f"LD_PRELOAD=$LD_PRELOAD:{library} ENDS_EARLY=kill"
                                    f" {recording.program('burst')} 10; exit 0")
        self.assertEqual(rows, [(recording.program("burst"), "ended before it had loaded the recorder, or never did",
                                 1)])


class NoLoss(Case):
    def test_allocates_nothing(self):
        """The recorder was loaded, and had nothing to record."""
        for command in (["env", recording.program("noalloc")],
                        ["sh", "-c", f"exec {recording.program('noalloc')}"],
                        [WAYS, "posix_spawn", recording.program("noalloc")],
                        [WAYS, "vfork", recording.program("noalloc")],
                        ["env", "true"]):
            with self.subTest(command=command):
                _, rows = self.run_and_list(*command)
                self.assertEqual(rows, [])
                self.assert_no_loss()

    def test_ends_before_the_recorder_says_so(self):
        """A library's constructor ends the process when the recorder is loaded, and its own has not run."""
        library, burst = recording.program("lib_ends_early.so"), recording.program("burst")
        for how, status in (("exit", 3), ("used", 3), ("kill", -9)):
            run = f"{burst} 10"
            with self.subTest(how):
                _, rows = self.run_and_list("sh", "-c", f"LD_PRELOAD=$LD_PRELOAD:{library} ENDS_EARLY={how} exec {run}",
                                            status=status)
                self.assertEqual(rows, [])
            if how == "kill":
                break
            with self.subTest(how, of="a child"):
                _, rows = self.run_and_list("sh", "-c", f"LD_PRELOAD=$LD_PRELOAD:{library} ENDS_EARLY={how} {run};"
                                            " exit 0")
                self.assertEqual(rows, [])

    def test_no_descriptor_is_free(self):
        """At the exec it is not known since when the process runs; after it, that is."""
        code = ("import os, resource\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\ntry:\n"
                " while True: os.open('/dev/null', os.O_RDONLY | os.O_CLOEXEC)\nexcept OSError:\n"
                f" os.execv('{recording.program('noalloc')}', ['noalloc'])\n")
        _, rows = self.run_and_list("/usr/bin/python3", "-S", "-c", code)
        self.assertEqual(rows, [])

    def test_proc_of_another_namespace(self):
        """/proc is of the PID namespace outside: the program's number means another process there, or none."""
        self.need_root("only root can make a PID namespace")
        outcome = recording.run(["unshare", "-pf", *self.record_command("sh", "-c", f"{recording.program('noalloc')};"
                                                                       " exit 0", options=recording.PLAIN)])
        if "unshare" in outcome.err:
            self.skipTest(outcome.err)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.open()
        self.assertEqual(self.sql("SELECT * FROM unrecorded_program"), [])

    def test_failed_execs(self):
        """Of a program that can't be recorded, and that can't be run either."""
        with open(STATIC, "rb") as stream:
            head = stream.read(4096)
        # program headers past its end
        damaged = self.write("damaged", head[:32] + struct.pack("<Q", 1 << 20) + head[40:], 0o755)
        for way in ("execv", "execvp", "vfork", "posix_spawn", "posix_spawnp"):
            for path in (self.folder, damaged, "/nonexistent", "/etc/passwd"):
                with self.subTest(way=way, path=path):
                    outcome = recording.run([WAYS, way, path], cwd=self.folder)  # a shell may take it for a script
                    self.assertNotEqual(outcome.returncode, 0)
                    _, rows = self.run_and_list(WAYS, way, path, status=outcome.returncode, cwd=self.folder)
                    self.assertEqual(rows, [])

    def test_failed_by_the_arguments(self):
        """E2BIG, from a program that can't be recorded: it was noted, and is taken back."""
        _, rows = self.run_and_list(
            "/usr/bin/python3", "-S", "-c", f"import os\ntry:\n os.execv('{STATIC}', ['x', 'y' * 5000000])\n"
            "except OSError as error:\n print(error.errno)")
        self.assertEqual(rows, [])


class Reported(Case):
    def test_lists(self):
        """Summary, info and report say the same; --quiet is quiet."""
        outcome = self.record("sh", "-c", f"{STATIC}; {STATIC}; env -i /bin/true; exit 0", options=recording.PLAIN)
        line = f"2 programs could not be recorded: {STATIC} (statically linked) ×2, /bin/true ({NO_RECORDER})"
        self.assertIn(f"varve: {line}; varve info lists them\n", outcome.err)
        info = recording.varve("info", self.path).out
        self.assertIn(line, " ".join(info.split()))
        self.assertRegex(info, r"Programs that could not be recorded\n(?s:.*)static_hello +statically linked +2\n")
        self.assertNotIn("nothing lost", info)
        self.assertIn(line, " ".join(recording.varve("report", self.path).out.split()))
        answer = json.loads(recording.varve("info", "--json", self.path).out)
        self.assertEqual(answer["unrecorded_program"], [
            {"path": STATIC, "reason": "statically linked", "count": 2},
            {"path": "/bin/true", "reason": NO_RECORDER, "count": 1}])
        self.assertEqual((answer["loss"]["nothing_lost"], answer["loss"]["programs_unrecorded"]), (False, 2))
        self.assertEqual(self.record("sh", "-c", f"{STATIC}; exit 0", options=[*recording.PLAIN, "--quiet"]).err, "")

    def test_many(self):
        """More than there are slots for notes."""
        _, rows = self.run_and_list("sh", "-c", f"i=0; while [ $i -lt 1200 ]; do {STATIC}; i=$((i+1)); done >"
                                                " /dev/null")
        self.assertEqual(rows, [(STATIC, "statically linked", 1200)])

    def test_recovered(self):
        """They outlive the collector, whether it had stored them or not."""
        go = os.path.join(self.folder, "go")
        process = self.start_recording("sh", "-c", f"{STATIC}; {STATIC}; sleep 1; {STATIC}; echo go;"
                                       f" while [ ! -e {go} ]; do sleep 0.02; done; {STATIC}; ls / > /dev/null; exit 0")
        for _ in range(4):
            process.stdout.readline()
        process.kill()
        self.write(go)
        recording.finish_orphan(process)
        outcome = self.varve("recover", self.path + ".d")
        self.open()
        self.assertEqual(self.sql("SELECT * FROM unrecorded_program"), [(STATIC, "statically linked", 4)])
        self.assertEqual(self.sql("SELECT value FROM data_loss WHERE name = 'processes_unrecorded'"), [(4,)])
        self.assertNotIn("nothing lost", outcome.out)


if __name__ == "__main__":
    recording.main()
