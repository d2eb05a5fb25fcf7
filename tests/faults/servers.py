#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers, run times, browsers and tools as Debian packages them: each is run alone and under `varve record`, asked
the same, stopped the same way. Status and answers must be equal, and the health line must say that nothing is lost, or
what is.
Prints a row of a Markdown table for each; the exit status is 1 if something differs. Takes minutes: `./dev nightly`.

usage: servers.py [--cgroup[=MB]] [--list] [NAME…]
       --cgroup   varve and the program in a memory cgroup, as in a container; default: what the table has (300 MB)
       --list     names and Debian packages; what is not installed is skipped, with a line"""

import collections
import contextlib
import glob
import os
import pwd
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

LIMIT_SECONDS = 300  # of one run: what takes longer hangs
PATH = ":".join([os.environ.get("PATH", ""), "/usr/sbin", *glob.glob("/usr/lib/postgresql/*/bin")])

APPLICATION = """import json
def application(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [json.dumps([list(range(i)) for i in range(100)]).encode()]
"""
PHP = "<?php $a = []; for ($i = 0; $i < 20000; $i++) { $a[] = str_repeat('x', $i % 100); } echo 'rows ', count($a);"
NODE = """const http = require("http");
const server = http.createServer((request, response) => {
    response.end(JSON.stringify(Array.from({length: 1000}, (unused, i) => ({i, text: "x".repeat(i % 50)}))));
});
server.listen(+process.argv[2], "127.0.0.1");
process.on("SIGTERM", () => { server.close(() => process.exit(0)); server.closeAllConnections(); });
"""
JAVA = recording.text_of("Work.java")
RUBY = """require "json"
threads = 4.times.map { Thread.new { 200.times.map { |i| JSON.generate((0..i).to_a).size }.sum } }
puts threads.map(&:value).sum
GC.start
puts `echo from a child`
exit 5
"""
PERL = """my %h; $h{$_ % 1000} .= "x" x ($_ % 50) for 1 .. 100000;
my $pid = fork; if (!$pid) { print "child ", scalar(keys %h), "\\n"; exit 3 } waitpid $pid, 0;
print "status ", $? >> 8, " ", length(join "", values %h), "\\n"; print `echo from a shell`; exit 5;
"""
GO = """package main
/*
#include <stdlib.h>
#include <string.h>
static long work(int count) {
    long sum = 0;
    for (int i = 0; i < count; i++) {
        char *volatile block = malloc(100 + i % 1000);
        memset(block, i, 100);
        sum += block[50];
        free(block);
    }
    return sum;
}
*/
import "C"
import ("fmt"; "os"; "os/exec"; "sync")
func main() {
    var group sync.WaitGroup
    sums := make([]int64, 16)
    for i := range sums {
        group.Add(1)
        go func(i int) { defer group.Done(); sums[i] = int64(C.work(C.int(1000 * (i + 1)))) }(i)
    }
    group.Wait()
    out, err := exec.Command("/bin/echo", "from a child").Output()
    fmt.Println(sums, string(out), err)
    os.Exit(5)
}
"""
RUST = """use std::collections::BTreeMap;
use std::process::Command;
fn main() {
    let threads: Vec<_> = (0..4u64).map(|t| std::thread::spawn(move || {
        let mut map = BTreeMap::new();
        for i in 0..20000u64 { map.insert(i * 7919 % 10007, vec![t; (i % 50) as usize]); }
        map.values().map(|v| v.len()).sum::<usize>()
    })).collect();
    let sums: Vec<usize> = threads.into_iter().map(|t| t.join().unwrap()).collect();
    let out = Command::new("/bin/echo").arg("from a child").output().unwrap();
    println!("{:?} {}", sums, String::from_utf8_lossy(&out.stdout));
    std::process::exit(5);
}
"""
CXX = """#include <cstdio>
#include <map>
#include <string>
#include <thread>
#include <vector>
int main()
{
    std::vector<std::thread> threads;
    std::vector<size_t> sums(4);
    for (size_t t = 0; t < sums.size(); t++) {
        threads.emplace_back([t, &sums] {
            std::map<int, std::string> map;
            for (int i = 0; i < 20000; i++) {
                map[i * 7919 % 10007] = std::string(i % 200, 'x');
            }
            for (auto &entry : map) {
                sums[t] += entry.second.size();
            }
        });
    }
    for (auto &thread : threads) {
        thread.join();
    }
    for (size_t sum : sums) {
        printf("%zu\\n", sum);
    }
    return 5;
}
"""
GIT = """set -e
export GIT_AUTHOR_DATE='2000-01-01T00:00:00Z' GIT_COMMITTER_DATE='2000-01-01T00:00:00Z' GIT_CONFIG_GLOBAL=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git init -q -b main repository; cd repository
for i in $(seq 200); do seq $i > file$i; done
git add .; git commit -qm one; for i in 1 5 9; do seq 1000 > file$i; git commit -qam $i; done
git gc -q; git clone -q . ../clone; git -C ../clone log --stat | tail -n 5; git rev-parse HEAD; git fsck --no-progress
"""
MAKE = """objects = $(patsubst %,f%.o,1 2 3 4 5 6 7 8)
program: $(objects)
\tg++ -o $@ $^
%.o: %.cc
\tg++ -O1 -c -o $@ $<
"""


class Skipped(Exception):
    """It can't be run here; the text says why."""


class Failed(Exception):
    """It did not run as it should, alone; the text says how."""


def find(name):
    path = shutil.which(name, path=PATH)
    if path is None:
        raise Skipped(f"{name} is not installed")
    return path


def user(name):
    if os.geteuid() != 0:
        raise Skipped("only root can become another user")
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Skipped(f"there is no user {name}") from None


def is_listening(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class Run:
    """One run in a folder of its own: what the functions of the table get."""

    def __init__(self, folder):
        self.folder = folder
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = listener.getsockname()[1]

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, content):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content)
        return path

    def call(self, *command, **options):
        """What is no part of the recording; it has to succeed."""
        outcome = subprocess.run(command, check=False, capture_output=True, text=True, errors="replace",
                                 cwd=self.folder, timeout=LIMIT_SECONDS, **options)
        if outcome.returncode != 0:
            raise Failed(f"{os.path.basename(command[0])} ended with {outcome.returncode}: {outcome.stderr[-200:]}")
        return outcome.stdout

    def get(self, count=50, path="/"):
        """The sizes of that many answers by HTTP."""
        sizes = collections.Counter()
        for _ in range(count):
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
                sizes[answer.status, len(answer.read())] += 1
        return dict(sizes)


# Each function prepares the folder and returns the command, for servers with what is asked and the signal that stops.
Program = collections.namedtuple("Program", "command ask stop ready environment clean")


def program(*command, ask=None, stop=signal.SIGTERM, ready=None, environment=None, clean=lambda text: text):
    return Program([find(command[0]), *command[1:]], ask, stop, ready, environment or {}, clean)


def nginx(run):
    user("www-data")
    run.write("html/index.html", "x" * 100000)
    temporary = "".join(f"{name}_temp_path {run.folder}/{name};"
                        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    run.write("nginx.conf", f"""user www-data; daemon off; worker_processes 2; pid {run.folder}/pid;
        error_log {run.folder}/error.log; events {{}}
        http {{ access_log {run.folder}/access.log; {temporary} gzip on; gzip_types text/html;
            server {{ listen 127.0.0.1:{run.port}; root {run.folder}/html; }} }}""")
    return program("nginx", "-c", run.path("nginx.conf"), "-e", run.path("error.log"), ask=run.get,
                   stop=signal.SIGQUIT)


def uwsgi(run):
    user("www-data")
    return program("uwsgi", "--plugins", "http,python3", "--http", f"127.0.0.1:{run.port}", "--wsgi-file",
                   run.write("application.py", APPLICATION), "--master", "--processes", "2", "--uid", "www-data",
                   "--gid", "www-data", "--die-on-term", "--disable-logging", ask=run.get)


def gunicorn(run):
    run.write("application.py", APPLICATION)
    return program("gunicorn", "-w", "2", "--chdir", run.folder, "-b", f"127.0.0.1:{run.port}",
                   "application:application", ask=run.get)


def php_fpm(run):
    user("www-data")
    fastcgi = find("cgi-fcgi")
    name = next((name for name in (f"php-fpm8.{minor}" for minor in range(9, -1, -1)) if shutil.which(name, path=PATH)),
                "php-fpm")
    script = run.write("page.php", PHP)
    run.write("fpm.conf", f"[global]\nerror_log = {run.folder}/fpm.log\n[www]\nuser = www-data\ngroup = www-data\n"
              f"listen = 127.0.0.1:{run.port}\npm = static\npm.max_children = 3\npm.max_requests = 20\n")

    def ask():
        environment = {**os.environ, "SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET"}
        answers = [run.call(fastcgi, "-bind", "-connect", f"127.0.0.1:{run.port}", env=environment) for _ in range(50)]
        return dict(collections.Counter(answer.split()[-1] for answer in answers))

    return program(name, "-F", "-n", "-y", run.path("fpm.conf"), ask=ask, stop=signal.SIGQUIT)


def postgres(run):
    """Started by root as another user."""
    owner = user("postgres")
    initdb, psql, data = find("initdb"), find("psql"), run.path("data")
    os.chown(run.folder, owner.pw_uid, owner.pw_gid)
    environment = {**os.environ, "LC_ALL": "C.UTF-8"}
    run.call(initdb, "-D", data, "-A", "trust", "-U", "postgres", "-N", user=owner.pw_uid, group=owner.pw_gid,
             env=environment)

    def ask():
        queries = ("CREATE TABLE t AS SELECT i, repeat('x', i % 100) AS x FROM generate_series(1, 20000) i;"
                   "SELECT count(*), sum(length(x)) FROM t; SELECT max(i) FROM t GROUP BY i % 3 ORDER BY 1;")
        return run.call(psql, "-h", run.folder, "-p", str(run.port), "-U", "postgres", "-At", "-c", queries)

    return program("setpriv", "--reuid", "postgres", "--regid", "postgres", "--init-groups", find("postgres"), "-D",
                   data, "-k", run.folder, "-p", str(run.port), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
                   ask=ask, stop=signal.SIGINT, environment={"LC_ALL": "C.UTF-8"})


def redis(run):
    client = [find("redis-cli"), "-p", str(run.port)]

    def ask():
        script = "".join(f"set key{i} {'x' * (i % 500)}\n" for i in range(2000)) + "dbsize\nget key77\nbgsave\n"
        answer = run.call(*client, input=script)[-200:]
        while "rdb_bgsave_in_progress:0" not in run.call(*client, "info", "persistence"):
            time.sleep(0.05)
        return answer

    return program("redis-server", "--port", str(run.port), "--bind", "127.0.0.1", "--dir", run.folder, "--logfile",
                   run.path("redis.log"), ask=ask)


def sshd(run):
    """It gives up its rights, confines itself, and cleans the environment of what it starts."""
    find("ssh")
    for name in ("host", "user"):
        run.call(find("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", run.path(name))
    if os.geteuid() == 0:
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)
    run.write("sshd_config", f"Port {run.port}\nListenAddress 127.0.0.1\nHostKey {run.folder}/host\nPidFile none\n"
              f"UsePAM no\nStrictModes no\nAuthorizedKeysFile {run.folder}/user.pub\nPasswordAuthentication no\n"
              "PermitRootLogin yes\nSubsystem sftp internal-sftp\n")

    def ask():
        return run.call("ssh", "-F", "none", "-i", run.path("user"), "-p", str(run.port), "-o", "BatchMode=yes", "-o",
                        "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "127.0.0.1",
                        "echo said by $((6 * 7)); ls /etc/passwd")

    return program("sshd", "-D", "-e", "-f", run.path("sshd_config"), ask=ask)


def node(run):
    return program("node", run.write("server.js", NODE), str(run.port), ask=run.get)


def java(run):
    find("javac")
    return program("java", run.write("Work.java", JAVA))


def ruby(run):
    return program("ruby", run.write("work.rb", RUBY))


def perl(run):
    return program("perl", run.write("work.pl", PERL))


def go(run):
    run.write("work.go", GO)
    run.call(find("go"), "build", "-o", "work", "work.go",
             env={**os.environ, "GOCACHE": run.path("cache"), "CGO_ENABLED": "1", "HOME": run.folder})
    return program(run.path("work"))


def rust(run):
    run.call(find("rustc"), "-O", "-o", "work", run.write("work.rs", RUST))
    return program(run.path("work"))


def ffmpeg(run):
    return program("ffmpeg", "-nostdin", "-v", "error", "-f", "lavfi", "-i", "testsrc=duration=2:size=320x240", "-c:v",
                   "mpeg4", "-threads", "2", "-f", "md5", "-")


def git(run):
    find("git")
    return program("sh", run.write("work.sh", GIT))


def make(run):
    find("g++")
    run.write("Makefile", MAKE)
    for i in range(1, 9):
        body = f"std::map<int, std::string> f{i}() {{ return {{}}; }}\n" if i > 1 else "int main() { return 0; }\n"
        run.write(f"f{i}.cc", "#include <map>\n#include <string>\n" + body)
    return program("make", "-j4", "-C", run.folder)


def pytest(run):
    """Of a package that comes with its tests."""
    asked = subprocess.run(["/usr/bin/python3", "-c", "import pytest, numpy"], stderr=subprocess.DEVNULL, check=False)
    if asked.returncode != 0:
        raise Skipped("/usr/bin/python3 has no pytest or no numpy")
    run.write("test_work.py", "from numpy.lib.tests.test_stride_tricks import *\n"
              "from numpy.lib.tests.test_twodim_base import *\n")
    return program("/usr/bin/python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", run.path("test_work.py"),
                   clean=lambda text: re.sub(r" in [0-9.]+s.*", "", text))


PAGE = "<html><body><script>document.title='t';document.body.textContent='sum '+[...Array(9).keys()].join()</script>"


def chromium(run):
    return program("chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={run.path('profile')}",
                   "--dump-dom", "file://" + run.write("page.html", PAGE), environment={"HOME": run.folder})


def firefox(run):
    picture = run.path("picture.png")
    os.mkdir(run.path("profile"))
    return program("firefox-esr", "--headless", "--no-remote", "--profile", run.path("profile"), "--screenshot",
                   picture, "--window-size=300,200", "file://" + run.write("page.html", PAGE),
                   environment={"HOME": run.folder}, clean=lambda text: f"a picture: {os.path.exists(picture)}")


def cxx(run, *libraries):
    find("g++")
    try:
        run.call("g++", "-O1", "-pthread", "-o", "work", run.write("work.cc", CXX), *libraries)
    except Failed as failed:
        raise Skipped(f"g++ links no {' '.join(libraries)}: {failed}") from None
    return program(run.path("work"))


def jemalloc(run):
    return cxx(run, "-l:libjemalloc.a", "-ldl", "-lm")


def mimalloc(run):
    return cxx(run, "-Wl,--no-as-needed", "-lmimalloc")


def tcmalloc(run):
    return cxx(run, "-Wl,--no-as-needed", "-ltcmalloc_minimal")


def valgrind(run):
    cxx(run)
    return program("valgrind", "-q", "--error-exitcode=9", run.path("work"))


def strace(run):
    return program("strace", "-f", "-o", run.path("calls"), "sh", "-c", "ls / | wc -l; exit 7")


Entry = collections.namedtuple("Entry", "name packages prepare megabytes")

ENTRIES = [
    Entry("nginx", "nginx-light", nginx, 300),
    Entry("uwsgi", "uwsgi uwsgi-plugin-python3", uwsgi, 300),
    Entry("gunicorn", "gunicorn", gunicorn, 300),
    Entry("php-fpm", "php-fpm libfcgi-bin", php_fpm, 300),
    Entry("postgres", "postgresql", postgres, 300),
    Entry("redis", "redis-server redis-tools", redis, 300),
    Entry("sshd", "openssh-server openssh-client", sshd, 300),
    Entry("node", "nodejs", node, 300),
    Entry("java", "default-jdk-headless", java, 600),
    Entry("ruby", "ruby", ruby, 300),
    Entry("perl", "perl", perl, 300),
    Entry("go with cgo", "golang-go gcc", go, 300),
    Entry("rust", "rustc", rust, 300),
    Entry("ffmpeg", "ffmpeg", ffmpeg, 300),
    Entry("git", "git", git, 300),
    Entry("make -j", "make g++", make, 600),
    Entry("pytest", "python3-pytest python3-numpy python3-hypothesis", pytest, 300),
    Entry("chromium", "chromium", chromium, 1200),
    Entry("firefox", "firefox-esr", firefox, 1200),
    Entry("static jemalloc", "g++ libjemalloc-dev", jemalloc, 300),
    Entry("mimalloc", "g++ libmimalloc-dev", mimalloc, 300),
    Entry("tcmalloc", "g++ libgoogle-perftools-dev", tcmalloc, 300),
    Entry("valgrind", "valgrind g++", valgrind, 300),
    Entry("strace", "strace", strace, 300),
]

# --- memory cgroups ------------------------------------------------------------------------------------------------


class Group:
    """A memory cgroup, of version 1 or 2."""

    def __init__(self, megabytes):
        base = "/sys/fs/cgroup/memory"
        self.limit, self.peak, self.events = "memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"
        if not os.path.isdir(base):
            base = "/sys/fs/cgroup"
            self.limit, self.peak, self.events = "memory.max", "memory.peak", "memory.events"
            with contextlib.suppress(OSError):
                self.put(os.path.join(base, "cgroup.subtree_control"), "+memory")
        self.folder = os.path.join(base, f"varve-servers-{os.getpid()}")
        try:
            os.mkdir(self.folder)
            self.put(os.path.join(self.folder, self.limit), str(megabytes << 20))
        except OSError as error:
            raise Skipped(f"no memory cgroups here: {error}") from None

    @staticmethod
    def put(path, text):
        with open(path, "w", encoding="ascii") as stream:
            stream.write(text)

    def enter(self):
        self.put(os.path.join(self.folder, "cgroup.procs"), str(os.getpid()))

    def close(self):
        """What was used at most, and how often the kernel killed something."""
        with contextlib.suppress(OSError), open(os.path.join(self.folder, self.peak), encoding="ascii") as stream:
            peak = f"{int(stream.read()) >> 20} MB"
        with open(os.path.join(self.folder, self.events), encoding="ascii") as stream:
            kills = next((int(line.split()[1]) for line in stream if line.startswith("oom_kill ")), 0)
        with contextlib.suppress(OSError):
            recording.wait_until(lambda: not self.kill_all(), what="the processes of the group")
            os.rmdir(self.folder)
        return peak + (f", {kills} KILLED" if kills else "")

    def kill_all(self):
        """What has left the session of the run; those that still are there."""
        with open(os.path.join(self.folder, "cgroup.procs"), encoding="ascii") as stream:
            left = stream.read().split()
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        return left


# --- running -------------------------------------------------------------------------------------------------------

Result = collections.namedtuple("Result", "status out answers health seconds memory")


def stop_server(server, is_recorded, how):
    children = recording.children_of(server.pid) if is_recorded else []
    os.kill(next(iter(children), server.pid), how)


def talk(server, prepared, run, is_recorded):
    """Wait for the server, ask it, stop it; its answers."""
    until = time.monotonic() + LIMIT_SECONDS
    while server.poll() is None and not is_listening(run.port):
        if time.monotonic() > until:
            raise Failed("does not listen")
        time.sleep(0.05)
    try:
        answers = prepared.ask() if server.poll() is None else "it has ended"
    except (OSError, Failed) as error:
        answers = f"{type(error).__name__}: {error}"
    if server.poll() is None:
        stop_server(server, is_recorded, prepared.stop)
    return answers


def health_of(err, path):
    """The words of the last line about losses, and what could not be recorded."""
    lines = [line.removeprefix("varve: ") for line in err.splitlines() if line.startswith("varve: ")]
    last = next((line for line in lines if "; next: varve report" in line), None)
    if last is None:
        return "NO DATABASE: " + " ".join(lines)[-300:]
    words = "; ".join(last.split("; ")[1:-1])
    more = [line.removesuffix("; varve info lists them") for line in lines
            if re.search("programs? could not be recorded", line)]
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        losses = database.execute("SELECT count(*) FROM data_loss").fetchone()[0]
    if ("nothing lost" in words) != (losses == 0):
        words += " BUT data_loss SAYS OTHERWISE"
    return "; ".join([words, last.split(";")[0], *more])


def run_once(entry, is_recorded, group_of):
    with tempfile.TemporaryDirectory(prefix="varve-servers-") as folder:
        os.chmod(folder, 0o755)
        run = Run(folder)
        prepared = entry.prepare(run)
        database = run.path("trace.db")
        command = [*([recording.VARVE, "record", "-o", database, "--"] if is_recorded else []), *prepared.command]
        group = group_of()
        begin = time.monotonic()
        with open(run.path("out"), "w+", encoding="utf-8", errors="replace") as out, \
                open(run.path("err"), "w+", encoding="utf-8", errors="replace") as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder,
                                       env={**os.environ, "PATH": PATH, **prepared.environment},
                                       start_new_session=True, preexec_fn=group.enter if group else None)
            answers = None
            try:
                answers = talk(process, prepared, run, is_recorded) if prepared.ask else None
                status = process.wait(timeout=LIMIT_SECONDS)
            except (Failed, subprocess.TimeoutExpired) as error:
                status = f"HANGS ({error})"
            seconds = time.monotonic() - begin
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            memory = group.close() if group else ""
            out.seek(0)
            err.seek(0)
            said, errors = out.read().replace(folder, "FOLDER"), err.read()
            health = health_of(errors, database) if is_recorded and isinstance(status, int) else ""
            if status not in (0, 5, 7):
                print(f"servers: {entry.name}: status {status}: {errors[-1500:]}", file=sys.stderr)
            return Result(status, prepared.clean(said), answers, health, seconds, memory)


def row(entry, group_of):
    """A row, and whether the two runs were equal."""
    alone = run_once(entry, False, group_of)
    recorded = run_once(entry, True, group_of)
    differ = [name for name in ("status", "out", "answers") if getattr(alone, name) != getattr(recorded, name)]
    for name in differ:
        print(f"servers: {entry.name}: {name} alone: {str(getattr(alone, name))[-1000:]!r}\n"
              f"servers: {entry.name}: {name} recorded: {str(getattr(recorded, name))[-1000:]!r}", file=sys.stderr)
    cells = [entry.name, str(alone.status), str(recorded.status), f"DIFFERS: {', '.join(differ)}" if differ else "same",
             recorded.health, f"{alone.seconds:.1f} → {recorded.seconds:.1f} s"]
    if alone.memory:
        cells.append(f"{alone.memory} → {recorded.memory}")
    return cells, not differ


def main():
    arguments = sys.argv[1:]
    cgroup = next((argument for argument in arguments if argument.startswith("--cgroup")), None)
    names = [argument for argument in arguments if not argument.startswith("-")]
    if "--list" in arguments:
        for entry in ENTRIES:
            print(f"{entry.name:16} {entry.packages}")
        return 0
    heads = ["program", "status alone", "recorded", "output", "health", "time"]
    heads += ["memory, at most"] if cgroup else []
    print("| " + " | ".join(heads) + " |\n|" + "---|" * len(heads), flush=True)
    are_equal = True
    for entry in ENTRIES:
        if names and entry.name not in names:
            continue
        limit = int(cgroup.partition("=")[2] or entry.megabytes) if cgroup else 0
        try:
            cells, is_equal = row(entry, (lambda limit=limit: Group(limit)) if cgroup else lambda: None)
        except Skipped as skipped:
            print(f"servers: {entry.name} is skipped: {skipped} ({entry.packages})", flush=True)
            continue
        except (Failed, OSError) as failed:
            cells, is_equal = [entry.name, f"FAILED: {failed}"], False
        are_equal = are_equal and is_equal
        print("| " + " | ".join(cell.replace("|", "/").replace("\n", " ") for cell in cells) + " |", flush=True)
    return 0 if are_equal else 1


if __name__ == "__main__":
    sys.exit(main())
