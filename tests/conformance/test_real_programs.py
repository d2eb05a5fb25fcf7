#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 9 s, full 15 s
# Only with an unsanitized command: what is looked at are programs and the recorder, which are never sanitized;
# preloaded allocators disturb varve's.
"""Programs that others wrote, with and without a recorder: sanitizers, allocators, tools that watch processes, servers
that drop privileges. Each must end as it ends alone, and be recorded as a whole, or the recording names what it lacks.
What is not installed is skipped, with a line."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

JAVA = recording.text_of("Work.java")
NODE = "const a = []; for (let i = 0; i < 2e4; i++) a.push({i}); console.log('items', a.length); process.exitCode = 6"
PYTHON = "import json; print(sum(len(json.dumps(list(range(i)))) for i in range(300))); raise SystemExit(8)"


def find(name):
    """A program, also in the folders of servers; None if it is not there."""
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/bin:/usr/lib/postgresql/15/bin")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class RealProgram(recording.Case):
    def need(self, *names):
        for name in names:
            if find(name) is None:
                self.skipTest(f"{name} is not installed")
        return [find(name) for name in names]

    def assert_complete_or_reported(self, outcome, name):
        """The program's own process has events and nothing is missing, or what is missing is named."""
        self.assert_finished()
        self.assert_conserved()
        info = self.varve("info", self.path)
        losses = self.sql("SELECT name, source, value FROM data_loss")
        recorded = self.one("SELECT coalesce(sum(stored), 0) FROM thread t JOIN process p ON p.id = t.process_id"
                            " WHERE p.executable LIKE '%/' || ?", name)
        if losses:
            said = "".join(line for line in outcome.err.splitlines(True) if line.startswith("varve: "))
            self.assertIn(name, said + info.out, losses)
        else:
            self.assertIn("nothing lost", outcome.err)
            self.assertGreater(recorded, 0, f"{name} has events: {outcome}")
        return losses

    def compare(self, *command, name=None, complete=False, record=(), **options):
        """The same command with and without. `complete`: it is known that nothing is missing."""
        alone = recording.run(command, **options)
        outcome = recording.run(self.record_command(*command, options=record), **options)
        self.assertEqual((outcome.returncode, outcome.out), (alone.returncode, alone.out), (alone, outcome))
        losses = self.assert_complete_or_reported(outcome, name or os.path.basename(os.path.realpath(command[0])))
        if complete:
            self.assertEqual(losses, [])
        return outcome

    # ---- sanitizers ----

    def sanitized(self, compiler, sanitizer):
        if shutil.which(compiler) is None:
            self.skipTest(f"{compiler} is not installed")
        target = os.path.join(self.folder, "sanitized")
        built = recording.run([compiler, "-std=c++17", "-g", f"-fsanitize={sanitizer}", "-fno-builtin",
                               "-fsized-deallocation",
                               os.path.join(recording.ROOT, "tests", "programs", "cxx_counted.cc"), "-o", target,
                               "-pthread"])
        if built.returncode != 0:
            self.skipTest(f"{compiler} has no -fsanitize={sanitizer} here")
        environment = {**os.environ, "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0:alloc_dealloc_mismatch=0",
                       "TSAN_OPTIONS": "report_bugs=0"}
        alone = recording.run([target, "nothing-fails"], env=environment)
        if alone.returncode != 0:
            self.skipTest(f"{compiler} -fsanitize={sanitizer} does not run here: {alone.err[:200]!r}")
        outcome = recording.run(self.record_command(target, "nothing-fails"), env=environment)
        self.assertEqual(outcome.returncode, 0, outcome)
        sums = [recording.json_lines(one.out)[-1] for one in (alone, outcome)]
        self.assertEqual(*sums)
        losses = self.assert_complete_or_reported(outcome, "sanitized")
        if not losses:
            self.assertEqual(self.sql("SELECT count(*), sum(size) FROM events WHERE kind IN ('heap_alloc',"
                                      " 'heap_realloc')"
                                      " AND size BETWEEN 20000 AND 7654320 AND seq > (SELECT min(seq) FROM events"
                                      " WHERE kind = 'heap_alloc' AND size = 7654321)"),
                             [(sums[0]["allocations"], sums[0]["bytes"])])
        return losses

    def check_sanitized(self, compiler, sanitizer):
        """clang's run time is in the program."""
        self.assertEqual([row[0] for row in self.sanitized(compiler, sanitizer)],
                         ["heap_not_recorded"] if compiler == "clang++" else [])

    def test_clang_asan(self):
        self.check_sanitized("clang++", "address")

    def test_gcc_asan(self):
        self.check_sanitized("g++", "address")

    def test_clang_tsan(self):
        self.check_sanitized("clang++", "thread")

    def test_gcc_tsan(self):
        self.check_sanitized("g++", "thread")

    # ---- allocators: test_cxx_allocators.py counts, this is somebody's large program ----

    def preloaded(self, library):
        self.need("python3")
        folders = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
        paths = (os.path.join(folder, library) for folder in folders)
        found = next((path for path in paths if os.path.exists(path)), None)
        if found is None:
            self.skipTest(f"{library} is not installed")
        self.compare(sys.executable, "-c", PYTHON, complete=True, env={**os.environ, "LD_PRELOAD": found})

    def test_python_on_jemalloc(self):
        self.preloaded("libjemalloc.so.2")

    def test_python_on_tcmalloc(self):
        self.preloaded("libtcmalloc_minimal.so.4")

    def test_python_on_mimalloc(self):
        self.preloaded("libmimalloc.so.2.0")

    # ---- tools that watch ----

    def test_valgrind(self):
        """Its tools are static programs, which serve the malloc of what they run."""
        self.need("valgrind")
        self.compare(find("valgrind"), "-q", "--error-exitcode=9", recording.program("churn"), "1000", name="valgrind")

    def test_strace(self):
        self.need("strace")
        self.compare(find("strace"), "-f", "-o", os.path.join(self.folder, "calls"), "/bin/sh", "-c",
                     "ls / | wc -l; exit 7", complete=True)

    # ---- run times ----

    def test_java(self):
        self.need("java", "javac")
        with open(os.path.join(self.folder, "Work.java"), "w", encoding="utf-8") as stream:
            stream.write(JAVA)
        subprocess.run(["javac", "Work.java"], cwd=self.folder, check=True)
        self.compare(find("java"), "-cp", self.folder, "Work", complete=True)

    def test_node(self):
        self.need("node")
        self.compare(find("node"), "-e", NODE, record=() if recording.IS_FULL else recording.PLAIN)

    # ---- servers ----

    def serve(self, command, talk, stop, port=None, ready=None, **options):
        """Status and answers of a server: started, asked, stopped. `stop` is a signal or a function."""
        server = recording.start(command, **options)
        try:
            recording.wait_until(lambda: server.poll() is not None or (is_listening(port) if port else ready()),
                                 what=f"{command} to listen")
            answers = talk() if server.poll() is None else None
            if callable(stop):
                stop()
            else:
                children = recording.children_of(server.pid) if command[0] == recording.VARVE else []
                pid = next(iter(children), server.pid)
                os.kill(pid, stop)
            outcome = recording.finish(server)
        finally:
            if server.poll() is None:
                os.killpg(server.pid, signal.SIGKILL)
                server.wait()
        return outcome, answers

    def serve_both(self, command, talk, stop, name, prepare=lambda: None, **options):
        prepare()
        alone, expected = self.serve(command, talk, stop, **options)
        self.assertIsNotNone(expected, alone)
        prepare()
        outcome, answers = self.serve(self.record_command(*command), talk, stop, **options)
        self.assertEqual((outcome.returncode, answers), (alone.returncode, expected), (alone, outcome))
        return self.assert_complete_or_reported(outcome, name)

    def test_redis(self):
        self.need("redis-server", "redis-cli")
        port = free_port()
        asking = [find("redis-cli"), "-p", str(port)]

        def talk():
            script = "".join(f"set key{i} {'x' * (i % 500)}\n" for i in range(2000)) + "dbsize\nget key77\n"
            return subprocess.run(asking, input=script, capture_output=True, text=True, check=True).stdout

        self.serve_both([find("redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir",
                         self.folder],
                        talk, lambda: subprocess.run([*asking, "shutdown", "nosave"], check=False),
                        os.path.basename(os.path.realpath(find("redis-server"))), port=port)

    def test_nginx(self):
        """A master and workers; as root these give up their rights after the fork."""
        self.need("nginx")
        port = free_port()
        os.makedirs(os.path.join(self.folder, "html"))
        with open(os.path.join(self.folder, "html", "index.html"), "w", encoding="utf-8") as stream:
            stream.write("x" * 100000)
        os.chmod(self.folder, 0o755)
        path = os.path.join(self.folder, "nginx.conf")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(f"daemon off; worker_processes 2; pid {self.folder}/pid; error_log {self.folder}/error.log;\n"
                         "events {}\n"
                         f"http {{ access_log off; client_body_temp_path {self.folder}/t1;"
                         f" proxy_temp_path {self.folder}/t2;"
                         f" fastcgi_temp_path {self.folder}/t3; uwsgi_temp_path {self.folder}/t4; scgi_temp_path"
                         f" {self.folder}/t5;\n server {{ listen 127.0.0.1:{port}; root {self.folder}/html; }} }}\n")

        def talk():
            answers = []
            for _ in range(50):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as answer:
                    answers.append((answer.status, len(answer.read())))
            return answers

        self.serve_both([find("nginx"), "-c", path, "-e", f"{self.folder}/error.log"], talk, signal.SIGQUIT, "nginx",
                        port=port)

    def test_postgres(self):
        """A server of many processes, as a user without rights: it forks, runs queries, and recovers."""
        self.need("postgres", "initdb", "psql")
        user = None
        if os.geteuid() == 0:
            try:
                user = pwd.getpwnam("postgres")
            except KeyError:
                self.skipTest("there is no user postgres to run the server as")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
        options = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        options["cwd"] = self.folder
        options["env"] = {**os.environ, "LC_ALL": "C.UTF-8"}
        data = os.path.join(self.folder, "data")
        port = free_port()

        def prepare():
            shutil.rmtree(data, ignore_errors=True)
            made = recording.run([find("initdb"), "-D", data, "-A", "trust", "-U", "postgres", "-N"], **options)
            self.assertEqual(made.returncode, 0, made)

        def talk():
            queries = ("CREATE TABLE t AS SELECT i, repeat('x', i % 100) AS x FROM generate_series(1, 20000) i;"
                       "SELECT count(*), sum(length(x)) FROM t; SELECT max(i) FROM t GROUP BY i % 3 ORDER BY 1;")
            asked = recording.run([find("psql"), "-h", self.folder, "-p", str(port), "-U", "postgres", "-At", "-c",
                                   queries],
                                  **options)
            return asked.returncode, asked.out

        self.serve_both([os.path.realpath(find("postgres")), "-D", data, "-k", self.folder, "-p", str(port),
                         "-c", "listen_addresses=", "-c", "fsync=off"], talk, signal.SIGINT, "postgres",
                        prepare=prepare,
                        ready=lambda: os.path.exists(os.path.join(self.folder, f".s.PGSQL.{port}")), **options)

    def test_sshd(self):
        """It gives up its rights, confines itself and cleans the environment of what it starts."""
        self.need("sshd", "ssh", "ssh-keygen")
        port = free_port()
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.folder, name)],
                           check=True)
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
        path = os.path.join(self.folder, "sshd_config")
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(f"Port {port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\nPidFile none\nUsePAM no\n"
                         f"StrictModes no\nAuthorizedKeysFile {self.folder}/user.pub\nPasswordAuthentication no\n"
                         "PermitRootLogin yes\n")

        def talk():
            asked = recording.run(["ssh", "-F", "none", "-i", f"{self.folder}/user", "-p", str(port), "-o",
                                   "BatchMode=yes",
                                   "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "127.0.0.1",
                                   "echo said by $((6 * 7)); exit 9"])
            return asked.returncode, asked.out

        probe, answers = self.serve([find("sshd"), "-D", "-e", "-f", path], talk, signal.SIGTERM, port=port)
        if answers != (9, "said by 42\n"):
            self.skipTest(f"sshd takes no login here: {answers} {probe.err[-300:]!r}")
        self.serve_both([find("sshd"), "-D", "-e", "-f", path], talk, signal.SIGTERM, "sshd", port=port)


if __name__ == "__main__":
    recording.main()
