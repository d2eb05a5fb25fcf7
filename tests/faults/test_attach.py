#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 25 s
"""varve attach and varve detach where they can't do what they are asked for: one line, exit status 2, and the process
as it was; and where somebody is killed meanwhile. Only with an unsanitized command: it loads a library into programs
that have no sanitizer."""

import ctypes
import os
import shutil
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

TARGET = recording.program("attach_target")
HOST = recording.program("attach_host")
ATTACHED = recording.program("attached")
CYCLES = 200 if recording.IS_FULL else 2
CHILDREN = 1100 if recording.IS_FULL else 70
PTRACE_SEIZE = 0x4206
WAIT_ALL = 0x40000000
NOBODY = 65534

MAPS_ITS_OWN = """
import mmap, sys, time
with open(sys.argv[1], "wb") as file:
    file.write(bytes(65536))
with open(sys.argv[1], "r+b") as file:
    page = mmap.mmap(file.fileno(), 65536)
print("ready", flush=True)
time.sleep(100)
"""

MANY_CHILDREN = """
import os, sys
print("ready", flush=True)
os.read(0, 1)
gate, held = os.pipe()
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(held)
        os.read(gate, 1)
        os._exit(0)
print("forked", flush=True)
os.read(0, 1)
os.close(held)
while True:
    try:
        os.wait()
    except ChildProcessError:
        break
"""

BUSY_PYTHON = """
import os, sys, threading
is_over, sums = False, []
def work():
    total = 0
    while not is_over:
        total += sum(len(bytes(size)) for size in range(600, 700)) - 64950
    sums.append(total)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
print("ready", flush=True)
os.read(0, 1)
is_over = True
for thread in threads:
    thread.join()
print("well" if sums == [0] * 3 else sums)
"""

CLIENT = """
import os, select, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
print("ready", flush=True)
is_well = True
while is_well and not select.select([0], [], [], 0.001)[0]:
    text = b"x" * 5000
    server.sendall(b"SET key " + text + b"\\r\\nGET key\\r\\n")
    answer, wanted = b"", b"+OK\\r\\n$5000\\r\\n" + text + b"\\r\\n"
    while len(answer) < len(wanted):
        part = server.recv(65536)
        answer += part
        if not part:
            break
    is_well = answer == wanted
print("well" if is_well else "ill")
"""

BUSY_NODE = """
let kept = [];
const timer = setInterval(() => {
    kept = Array.from({length: 1000}, (_, i) => ({number: i, text: "x".repeat(i)}));
    Buffer.alloc(100000);
}, 1);
process.stdin.once("data", () => {
    clearInterval(timer);
    console.log(kept.reduce((sum, one) => sum + one.text.length, 0) === 499500 ? "well" : "ill");
    process.stdin.destroy();
});
console.log("ready");
"""

COLLECTOR_PID_AT = 80  # in struct session_control


def pending_signals(pid):
    """Those of the process, as a bit mask."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as stream:
        return next(int(line.split()[1], 16) for line in stream if line.startswith("ShdPnd:"))


class Attach(recording.AttachCase):
    def target(self, threads=2):
        return self.begin(TARGET, self.folder, str(threads), "steady")

    def quit(self, process):
        self.assertIn("errors 0", " ".join(super().quit(process)))

    def attach_and_kill(self, pid, *options):
        """A collector that is dead."""
        collector = self.attach(pid, *options)
        collector.kill()
        collector.wait()
        return collector

    def detach_after_death(self, process):
        """detach takes the hooks out, and recover finishes the database."""
        self.assertIn("varve recover", self.varve("detach", str(process.pid)).err)
        self.assertFalse(recording.is_attached(process.pid))
        self.recover()

    def recover(self):
        self.varve("recover", self.path + ".d")
        self.assert_finished()

    def attach_to_another(self, pid, *options):
        """With another database, which is finished."""
        other = os.path.join(self.folder, "other.db")
        self.varve("attach", *options, "-o", other, str(pid))
        self.assert_finished(other)

    def refuse(self, command, pid, *words):
        """Of a command that would write another database."""
        other = ["-o", os.path.join(self.folder, "other.db")] if command == "attach" else []
        self.assert_refused(recording.varve(command, *other, str(pid)), *words)

    def lead(self, process):
        """A program that waits for input goes on."""
        process.stdin.write("\n")
        process.stdin.flush()

    def trace(self, tid):
        self.assertEqual(ctypes.CDLL(None, use_errno=True).ptrace(PTRACE_SEIZE, tid, None, None), 0)

    def end(self, collector):
        outcome = recording.finish(collector)
        self.assertEqual(outcome.returncode, 0, outcome)
        return outcome

    def refused(self, pid, *words, **options):
        self.assert_refused(recording.varve("attach", "-o", self.path, str(pid), **options), *words)
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith("trace")], [],
                         "nothing half-written")


class Refused(Attach):
    def test_numbers(self):
        for pid in ("x", "0", "-1", "1x", "99999999999999999999"):
            with self.subTest(pid=pid):
                self.assertEqual(recording.varve("attach", pid).returncode, 2)
                self.assertEqual(recording.varve("detach", pid).returncode, 2)
        self.refused("x", "'x' is no process number")
        self.refused(4194303, "no such process: 4194303")
        self.refuse("detach", 4194303, "no such process")

    def test_itself(self):
        outcome = recording.run(["sh", "-c", f'exec "$0" attach -o {self.path} $$', recording.VARVE])
        self.assert_refused(outcome, "is this varve itself")

    def test_static_program(self):
        process = self.begin(recording.program("static_hello"), "wait", said="hello from a static program")
        self.refused(process.pid, "statically linked")
        self.assertIsNone(process.poll())

    def test_zombie(self):
        process = subprocess.Popen(["true"])  # pylint: disable=consider-using-with
        recording.wait_until(lambda: recording.process_state(process.pid) == "Z", what="the end")
        self.refused(process.pid, "has ended")
        process.wait()

    def test_kernel_thread(self):
        try:
            with open("/proc/2/comm", encoding="ascii") as stream:
                is_one = stream.read().strip() == "kthreadd"
        except OSError:
            is_one = False
        if not is_one:
            self.skipTest("no thread of the kernel is seen here")
        self.refused(2, "is a thread of the kernel")

    def test_thread_of_a_process(self):
        process = self.target()
        tid = next(int(tid) for tid in os.listdir(f"/proc/{process.pid}/task") if int(tid) != process.pid)
        self.refused(tid, f"is a thread of process {process.pid}")
        self.quit(process)

    def test_stopped_process(self):
        process = self.target()
        process.send_signal(signal.SIGSTOP)
        recording.wait_until(lambda: recording.process_state(process.pid) == "T", what="the stop")
        self.refused(process.pid, "is stopped", "kill -CONT")
        process.send_signal(signal.SIGCONT)
        self.quit(process)

    def test_process_with_a_debugger(self):
        process = self.target()
        self.trace(process.pid)
        self.refused(process.pid, "is being traced by", str(os.getpid()))
        process.kill()

    def test_process_of_another_user(self):
        self.need_root("only root has processes of other users")
        process = self.begin("sleep", "100", said=None, user=NOBODY, group=NOBODY, extra_groups=[])
        self.refused(process.pid, f"belongs to user {NOBODY}", "sudo -u")
        own = self.target()
        os.chmod(self.folder, 0o777)
        outcome = recording.varve("attach", "-o", self.path, own.pid, user=NOBODY, group=NOBODY, extra_groups=[],
                                  cwd="/")
        if outcome.returncode == 2:
            self.assertIn("belongs to user 0", outcome.err)
        self.quit(own)

    def test_another_root(self):
        if os.geteuid() != 0 or recording.run(["unshare", "-m", "true"]).returncode != 0:
            self.skipTest("no mount namespaces here")
        process = self.begin("unshare", "-m", "sh", "-c", "echo ready; exec sleep 100")
        recording.wait_until(lambda: os.path.basename(os.readlink(f"/proc/{process.pid}/exe")) != "unshare",
                             what="the exec")
        self.refused(process.pid, "another view of the file system")

    def test_confined_process(self):
        process = self.begin("sh", "-c", "grep Seccomp: /proc/self/status; exec sleep 100", said=None,
                             preexec_fn=recording.confine)
        if process.stdout.readline().split() != ["Seccomp:", "2"]:
            self.skipTest("no seccomp here")
        self.refused(process.pid, "has confined itself")
        self.assertIsNone(process.poll())

    def test_inside_a_container(self):
        """Whose filter is upon varve as well; a process that has added one to it is refused."""
        process = self.begin("sleep", "20", said=None, preexec_fn=recording.confine)
        outcome = recording.varve("attach", "--for", "0.1", "-o", self.path, str(process.pid),
                                  preexec_fn=recording.confine)
        self.assertEqual(outcome.returncode, 0, outcome)
        self.assertIn("nothing lost", outcome.err)
        twice = self.begin("sleep", "20", said=None, preexec_fn=lambda: recording.confine() and recording.confine())
        outcome = recording.varve("attach", "--for", "0.1", "-o", self.path, "--force", str(twice.pid),
                                  preexec_fn=recording.confine)
        self.assertIn("has confined itself", outcome.err)

    def test_killed_while_it_waits(self):
        """For a thread in a call that must not be cut short: nobody attaches the process later."""
        code = "import os; r, w = os.pipe(); os.write(w, b'x' * 60000); os.write(w, b'x' * (1 << 20))"
        process = self.begin(sys.executable, "-S", "-c", code, said=None)
        recording.wait_until(lambda: recording.process_state(process.pid) == "S", what="a full pipe")
        attach = subprocess.Popen([recording.VARVE, "attach", "-q", "-o", self.path, str(process.pid)])
        time.sleep(0.4)
        attach.kill()
        attach.wait()
        time.sleep(1.5)
        self.assertFalse(recording.is_attached(process.pid))
        self.assertIsNone(process.poll())

    def test_database_that_exists(self):
        process = self.target()
        self.write(self.path, "mine")
        self.assert_refused(recording.varve("attach", "-o", self.path, str(process.pid)), "exists")
        with open(self.path, encoding="ascii") as stream:
            self.assertEqual(stream.read(), "mine")
        self.assertFalse(recording.is_attached(process.pid))
        self.quit(process)

    def test_recorded_already(self):
        process = self.target()
        collector = self.attach(process.pid)
        self.refuse("attach", process.pid, "is recorded already, by varve attach", f"varve detach {process.pid}")
        self.varve("detach", str(process.pid))
        self.end(collector)
        self.refuse("detach", process.pid, "is not attached to")
        self.quit(process)

    def test_recorded_from_its_start(self):
        record = self.start_recording(TARGET, self.folder, "2", "steady", said="ready")
        pid = recording.program_of(record, "attach_target")
        self.refuse("attach", pid, "is recorded already, by varve record")
        self.refuse("detach", pid, "was started by varve record")
        self.quit(record)
        self.assert_finished()
        self.assert_no_loss()

    def test_program_with_a_file_of_its_own_that_has_the_name(self):
        own = os.path.join(self.folder, "session")
        for is_removed in (False, True):
            with self.subTest(is_removed=is_removed):
                process = self.begin(sys.executable, "-c", MAPS_ITS_OWN, own)
                if is_removed:
                    os.unlink(own)
                self.refuse("detach", process.pid, f"process {process.pid} is not attached to")
                self.assertIsNone(process.poll())


class Busy(Attach):
    def test_full_rings(self):
        """A thread that does nothing but allocate, and waits for room most of the time, is let go all the same."""
        process = self.begin(sys.executable, "-c", "print('ready', flush=True)\nwhile True: bytes(100_000)")
        for overflow in ("block", "drop"):
            with self.subTest(overflow=overflow):
                self.varve("attach", "--overflow", overflow, "--ring-size", "4K", "--stacks", "none", "--for", "0.3",
                           "-f", "-o", self.path, str(process.pid))
                self.assertFalse(recording.is_attached(process.pid))
                self.assert_finished()
                self.assertEqual(self.assert_conserved()[0] == 0, overflow == "block" or self.count("lost") == 0)
        self.assertIsNone(process.poll())

    def test_children_are_let_go_too(self):
        process = self.begin(sys.executable, "-c", "import os, time\nprint('ready', flush=True)\ninput()\nchild ="
                                                   " os.fork()\n"
                             "kept = [bytes(40_000) for _ in range(50)]\nos.write(1, b'%d\\n' %"
                             " child)\ntime.sleep(100)", stdin=subprocess.PIPE)
        collector = self.attach(process.pid)
        self.lead(process)
        child = max(int(process.stdout.readline()), int(process.stdout.readline()))
        self.assertTrue(recording.is_attached(child))
        self.varve("detach", str(process.pid))
        self.end(collector)
        self.assertFalse(recording.is_attached(process.pid))
        self.assertFalse(recording.is_attached(child))
        self.assertNotIn(recording.process_state(child), (None, "Z", "X"))
        self.assert_finished()
        self.assert_no_loss()
        self.assertEqual(self.sql("SELECT pid, count(*) FROM allocations WHERE domain = 'heap' AND requested = 40033"
                                  " GROUP BY pid ORDER BY pid"), sorted([(process.pid, 50), (child, 50)]))


def tracer_of(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as stream:
        return next(int(line.split()[1]) for line in stream if line.startswith("TracerPid:"))


class Awkward(Attach):
    """The program is at a place, or the recorder comes to one, where the call that loads it meets something."""

    def host(self, *arguments, **options):
        return self.begin(HOST, *arguments, stdin=subprocess.PIPE, **options)

    def start_attach(self, process, *options):
        collector = recording.start([recording.VARVE, "attach", "-o", self.path, *options, str(process.pid)])
        self.addCleanup(recording.kill_group, collector)
        return collector

    def assert_well(self, process, *words):
        """It ends by itself, and has noticed nothing."""
        process.send_signal(signal.SIGUSR1)
        outcome = recording.finish(process)
        self.assertEqual((outcome.returncode, outcome.out.split()[:1]), (0, ["well"]), outcome)

    def test_signals_for_the_command(self):
        """The injector is at work for the target: signals that are meant for the command do not end it midway."""
        process = self.host("gate", "forever")
        collector = self.start_attach(process)
        self.assertEqual(process.stdout.readline().strip(), "inside")
        injector = tracer_of(process.pid)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            os.kill(injector, number)
        os.killpg(collector.pid, signal.SIGKILL)
        collector.wait()
        self.lead(process)
        recording.wait_until(lambda: tracer_of(process.pid) == 0, what="the end of the injector")
        self.assertTrue(recording.is_attached(process.pid))
        self.assert_well(process)

    def test_registers_of_a_busy_thread(self):
        """It makes no system call, and finds its registers, and what lies below its stack, as they were."""
        process = self.host("gate", "busily")
        collector = self.start_attach(process, "--for", "0.05", "-q")
        self.assertEqual(process.stdout.readline().strip(), "inside")
        self.lead(process)
        self.end(collector)
        self.assert_well(process)

    def test_calls_that_are_not_begun_again(self):
        """The kernel ends some by a stop without any signal: the program does not see it."""
        process = self.host("waits")
        for _ in range(6):
            self.attach_shortly(process)
        self.assert_well(process)

    def attach_shortly(self, process):
        self.varve("attach", "--for", "0.05", "-q", "-f", "-o", self.path, str(process.pid))

    def test_faults_of_the_program(self):
        """It closes memory that its allocator writes, and opens it where that faults: also for the loader's
        allocations."""
        process = self.host("fault", "forever")
        self.attach_shortly(process)
        self.assert_well(process)

    def assert_loads(self, process):
        """The program ends what it was loading, can be attached to then, and ends well."""
        self.lead(process)
        self.assertEqual(process.stdout.readline().strip(), "loaded")
        self.attach_shortly(process)
        self.lead(process)
        self.end(process)

    def test_thread_inside_the_loader(self):
        """No other thread is made to wait for the loader's lock as long as that takes. On a busy machine that thread
        may not stop in time to be looked at, and the next case's rule holds: try again, it says."""
        process = self.host("load", recording.program("lib_attach_slow.so"))
        outcome = recording.finish(self.start_attach(process))
        while "was not let go of within 1 s" in outcome.err:
            outcome = recording.finish(self.start_attach(process))
        self.assert_refused(outcome, "was loading a library")
        self.assert_loads(process)

    def test_lock_of_a_thread_that_does_not_stop(self):
        """Nor where that thread can't be looked at; the wait is given up, and what waited goes on."""
        process = self.host("load", recording.program("lib_attach_slow.so"), env={**os.environ, "SLOW_VFORK": "1"})
        before = len(recording.mappings(process.pid))
        self.assert_refused(recording.finish(self.start_attach(process)), "was not let go of within 1 s")
        self.assertEqual(len(recording.mappings(process.pid)), before, "no memory of the call is left")
        self.assert_loads(process)

    def test_thread_that_does_not_stop(self):
        """It waits for its vfork child: it is looked at again until it does."""
        process = self.host("vfork")
        collector = self.start_attach(process, "--for", "0.1")
        recording.wait_until(lambda: tracer_of(process.pid) != 0 or collector.poll() is not None, what="the injector")
        time.sleep(0.3)
        self.lead(process)
        self.end(collector)
        self.assertEqual(process.stdout.readline().strip(), "well")
        self.lead(process)
        self.end(process)

    def test_thread_of_another_tracer(self):
        """Not known before: only one of the threads is traced. To be quiet all of them must be looked at."""
        process = self.target()
        self.attach_and_kill(process.pid)
        other = max(int(tid) for tid in os.listdir(f"/proc/{process.pid}/task"))
        self.trace(other)
        self.refuse("detach", process.pid, "is being traced by pid", str(os.getpid()))
        process.kill()
        os.waitpid(other, WAIT_ALL)


class GuestCase(Attach):
    """Programs that a tracer may harm."""

    def attached(self, *arguments, **options):
        process = self.begin(ATTACHED, *arguments, stdin=subprocess.PIPE, said=None, **options)
        if process.stdout.readline() != "ready\n":
            self.assertEqual(recording.finish(process).returncode, 77)
            self.skipTest(f"none of it here: {arguments}")
        return process

    def start_attach(self, process, *options):
        collector = recording.start([recording.VARVE, "attach", "-f", "-o", self.path, *options, str(process.pid)])
        self.addCleanup(recording.kill_group, collector)
        return collector

    def assert_well(self, process, by_signal=False):
        if by_signal:
            process.send_signal(signal.SIGUSR1)
        else:
            self.lead(process)
        outcome = recording.finish(process)
        self.assertEqual((outcome.returncode, outcome.out.split()[-1:]), (0, ["well"]), outcome)


class Guest(GuestCase):
    def test_calls_that_end_early(self):
        """The only thread waits where the kernel ends a call by a stop: it is begun again."""
        for call in ("sendmmsg", "sendfile", "connect", "recv", "epoll_wait", "semtimedop", "io_uring"):
            with self.subTest(call=call):
                process = self.attached("call", call)
                for _ in range(10 if recording.IS_FULL else 1):
                    self.end(self.start_attach(process, "--for", "0.02", "-q"))
                self.assert_well(process, by_signal=True)

    def test_thread_that_is_writing(self):
        """A write that waits for room would end with what it has written: another thread makes the call."""
        process = self.attached("write")
        self.end(self.start_attach(process, "--for", "0.02", "-q"))
        self.assert_well(process)

    def test_restartable_sequences(self):
        process = self.attached("sequence")
        for _ in range(4):
            self.end(self.start_attach(process, "--for", "0.02", "-q"))
        self.assert_well(process, by_signal=True)

    def test_main_thread_that_has_ended(self):
        process = self.attached("ended")
        recording.wait_until(lambda: recording.process_state(process.pid) == "Z", what="the end of the main thread")
        collector = self.start_attach(process)
        recording.wait_until(lambda: recording.is_attached(process.pid) or collector.poll() is not None,
                             what="the attaching")
        time.sleep(0.1)
        self.assertIn("detached from", self.varve("detach", str(process.pid)).err)
        self.end(collector)
        self.assertFalse(recording.is_attached(process.pid))
        self.assert_finished()
        self.assertGreater(self.one("SELECT count(*) FROM allocations WHERE requested = 4321"), 0)
        self.assertIn("attached", self.one("SELECT executable FROM process"))
        self.assert_well(process)

    def test_program_that_executes_itself_meanwhile(self):
        """Its threads must have ended before; those that are traced have only when their tracer has seen it."""
        process = self.attached("vforks")
        collector = self.start_attach(process, "-q")
        recording.wait_until(lambda: tracer_of(process.pid) != 0 or collector.poll() is not None, what="the injector")
        time.sleep(0.3)
        self.lead(process)
        self.assertEqual(process.stdout.readline(), "executed\n")
        self.assert_refused(recording.finish(collector), "has executed a program just now: try again")
        self.assert_well(process)

    def test_two_commands_at_once(self):
        """The second one finds the first in its call, which waits for a byte, and says so."""
        process = self.begin(HOST, "gate", "forever", stdin=subprocess.PIPE)
        collector = self.start_attach(process, "-q")
        self.assertEqual(process.stdout.readline().strip(), "inside")
        for command in ("attach", "detach"):
            self.refuse(command, process.pid, "another varve is attaching to it")
        self.lead(process)
        recording.wait_until(lambda: tracer_of(process.pid) == 0, what="the end of the injector")
        self.varve("detach", str(process.pid))
        self.end(collector)
        process.send_signal(signal.SIGUSR1)
        self.end(process)

    def test_program_that_is_stopped_meanwhile(self):
        """It stays so, and the last line says what it has in it."""
        process = self.attached("work")
        collector = self.attach(process.pid)
        process.send_signal(signal.SIGSTOP)
        recording.wait_until(lambda: recording.process_state(process.pid) == "T", what="the stop")
        collector.send_signal(signal.SIGTERM)
        last = self.end(collector).err.strip().split("\n")[-1]
        for words in ("the recorder is still inside", "is stopped", f"varve detach {process.pid} tries again"):
            self.assertIn(words, last)
        self.assertEqual(recording.process_state(process.pid), "T")
        process.send_signal(signal.SIGCONT)
        self.varve("detach", str(process.pid))
        self.assertFalse(recording.is_attached(process.pid))
        self.assert_well(process)

    def check_children(self, kind):
        process = self.attached("children", kind)
        collector = self.attach(process.pid)
        self.lead(process)
        process.stdout.readline()
        children = recording.children_of(process.pid)
        self.assertEqual((len(children), [pid for pid in children if not recording.is_attached(pid)]), (2, []))
        self.varve("detach", str(process.pid))
        self.end(collector)
        self.assertEqual([pid for pid in children if recording.is_attached(pid)], [])
        self.assert_well(process)

    def test_children_that_allocate_nothing(self):
        self.check_children("plain")

    def test_children_of_another_user(self):
        self.need_root("only root has processes of other users")
        self.check_children("user")

    def test_children_in_another_namespace(self):
        self.need_root("only root makes namespaces")
        self.check_children("pids")

    def test_many_children(self):
        process = self.begin(sys.executable, "-c", MANY_CHILDREN, str(CHILDREN), stdin=subprocess.PIPE)
        collector = self.attach(process.pid)
        self.lead(process)
        self.assertEqual(process.stdout.readline(), "forked\n")
        self.varve("detach", str(process.pid))
        self.end(collector)
        children = recording.children_of(process.pid)
        self.assertEqual(len(children), CHILDREN)
        self.assertEqual([pid for pid in children if recording.is_attached(pid)], [])
        self.lead(process)
        self.end(process)


class Cycles(GuestCase):
    """Attached to and detached from again and again: each time with one right line, and unharmed in the end."""

    def cycles(self, pid, *excuses):
        for _ in range(CYCLES):
            outcome = recording.varve("attach", "--for", "0.05", "-f", "-o", self.path, str(pid))
            lines = outcome.err.splitlines()
            if lines and lines[0].startswith(f"varve: recording process {pid} into {self.path}; Ctrl-C or varve "):
                del lines[0]
            if outcome.returncode == 0 and lines:
                self.assertRegex(lines[0], f"^varve: (detached from|end of) process {pid}: ")
                self.assert_finished()
            else:
                self.assertTrue(any(words in outcome.err for words in excuses), outcome)
                self.assertEqual(len(lines), 1, outcome)
            self.assertFalse(recording.is_attached(pid))
        self.assertEqual([line for line in recording.mappings(pid) if "varve-" in line], [])

    def test_program_with_threads(self):
        process = self.attached("work")
        self.cycles(process.pid)
        self.assert_well(process)

    def test_program_that_forks(self):
        process = self.attached("forks")
        self.cycles(process.pid)
        self.assert_well(process)

    def test_program_that_executes_itself(self):
        process = self.attached("exec", "30")
        self.cycles(process.pid, f"process {process.pid} has executed a program just now: try again")
        self.assert_well(process)

    def test_python(self):
        process = self.begin(sys.executable, "-c", BUSY_PYTHON, stdin=subprocess.PIPE)
        self.cycles(process.pid)
        self.assert_well(process)

    def test_server(self):
        """It answers all the while."""
        server, path = shutil.which("redis-server"), os.path.join(self.folder, "socket")
        if server is None:
            self.skipTest("no redis-server here")
        process = self.begin(server, "--port", "0", "--unixsocket", path, "--save", "", said=None)
        recording.wait_until(lambda: os.path.exists(path), what="the server")
        client = self.begin(sys.executable, "-c", CLIENT, path, stdin=subprocess.PIPE)
        self.cycles(process.pid)
        self.assert_well(client)
        process.terminate()
        self.end(process)

    def test_virtual_machine(self):
        node = shutil.which("node")
        if node is None:
            self.skipTest("no node here")
        process = self.begin(node, "-e", BUSY_NODE, stdin=subprocess.PIPE)
        self.cycles(process.pid)
        self.assert_well(process)


class Killed(Attach):
    def session_page(self, pid):
        """The path of the one that the process has mapped."""
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as stream:
            return next(line.split()[5] for line in stream if "/session" in line and "varve-" in line)

    def give_number_again(self, process, collector):
        """As if another process, which is returned, had got the number of the dead collector."""
        innocent = self.begin("sleep", "100", said=None)
        with open(self.session_page(process.pid), "r+b") as page:
            page.seek(COLLECTOR_PID_AT)
            self.assertEqual(struct.unpack("i", page.read(4)), (collector.pid,))
            page.seek(COLLECTOR_PID_AT)
            page.write(struct.pack("i", innocent.pid))
        return innocent

    def test_collector_whose_number_is_given_out_again(self):
        """The other process gets no signal, and the hooks go all the same."""
        process = self.target()
        collector = self.attach_and_kill(process.pid)
        innocent = self.give_number_again(process, collector)
        self.detach_after_death(process)
        self.assertIsNone(innocent.poll())
        self.quit(process)

    def test_attaching_after_a_collector_whose_number_is_given_out_again(self):
        process = self.target()
        collector = self.attach_and_kill(process.pid)
        self.give_number_again(process, collector)
        self.attach_to_another(process.pid, "--for", "0")
        self.assertFalse(recording.is_attached(process.pid))
        self.varve("recover", self.path + ".d")
        self.quit(process)

    def test_collector_that_is_killed_while_it_is_waited_for(self):
        process = self.target()
        collector = self.attach(process.pid)
        collector.send_signal(signal.SIGSTOP)
        detach = recording.start([recording.VARVE, "detach", str(process.pid)])
        self.addCleanup(recording.kill_group, detach)
        recording.wait_until(lambda: detach.poll() is not None or
                             pending_signals(collector.pid) >> (signal.SIGTERM - 1) & 1, what="the signal")
        collector.kill()
        collector.wait()
        self.assertIn("varve recover", self.end(detach).err)
        self.assertFalse(recording.is_attached(process.pid))
        self.recover()
        self.quit(process)

    def test_collector(self):
        """The program goes on; detach takes the hooks out, recover finishes the database."""
        process = self.target(threads=1)
        self.attach_and_kill(process.pid, "--ring-size", "64K")
        self.assert_refused(recording.varve("recover", self.path + ".d"), "still run", "varve detach")
        self.detach_after_death(process)
        self.assert_no_loss()
        self.assert_pairs(may_know_unknown=True)
        self.assertGreater(self.one("SELECT count(*) FROM event"), 0)
        self.quit(process)

    def test_attaching_after_a_dead_collector(self):
        process = self.target()
        self.attach_and_kill(process.pid)
        self.attach_to_another(process.pid, "--for", "0.2")
        self.assert_no_loss()
        self.varve("recover", self.path + ".d")
        self.quit(process)

    def test_program(self):
        process = self.target()
        collector = self.attach(process.pid)
        time.sleep(0.1)
        process.kill()
        self.assertIn("end of process", self.end(collector).err)
        self.assert_finished()
        self.assert_conserved()

    def test_program_after_a_dead_collector(self):
        process = self.target()
        self.attach_and_kill(process.pid)
        self.quit(process)
        self.recover()
        self.assert_no_loss()

    def test_program_that_becomes_another(self):
        shell = self.begin("sh", "-c", "echo ready; read line; exec sleep 100", stdin=subprocess.PIPE)
        collector = self.attach(shell.pid)
        self.lead(shell)
        recording.wait_until(lambda: os.path.basename(os.readlink(f"/proc/{shell.pid}/exe")) != os.path.basename(
            os.path.realpath("/bin/sh")), what="the exec")
        collector.send_signal(signal.SIGTERM)
        self.end(collector)
        self.assert_finished()
        self.assertEqual(self.sql("SELECT end_cause FROM process"), [("exec",)])
        self.assertIn(("environment without the recorder",), self.sql("SELECT reason FROM unrecorded_program"))
        self.assertIsNone(shell.poll())


class PlugIn(Attach):
    """A plug-in whose calls are not all bound, and that may have an allocator of its own: blocks stay with theirs."""

    def check(self, opened, called):
        process = self.begin(recording.program("deep_host"), opened, called, stdin=subprocess.PIPE)
        is_pool, first = opened == "deep", called == "begun"

        def step(times):
            self.lead(process)
            count = (10 * times + first) * is_pool
            self.assertEqual(process.stdout.readline(), f"{count} {count} 0\n")

        collector = self.attach(process.pid)
        step(1)
        self.varve("detach", str(process.pid))
        self.end(collector)
        step(2)
        step(3)
        self.end(process)
        self.assert_finished()
        return self.pairs(31)

    def test_allocator_that_one_call_is_bound_to(self):
        self.assertEqual(self.check("deep", "begun"), (0, 0))

    def test_allocator_that_no_call_is_bound_to_yet(self):
        self.assertEqual(self.check("deep", "fresh"), (0, 0))

    def test_allocator_that_is_not_called(self):
        """What is bound shows that the rest will be too."""
        self.assertEqual(self.check("plain", "begun"), (10, 10))


if __name__ == "__main__":
    recording.main()
