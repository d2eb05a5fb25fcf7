# SPDX-License-Identifier: Apache-2.0
"""What the tests of the second sink share: a session daemon of their own, recordings to both sinks, and the
comparison of the database with the one that is rebuilt from the LTTng trace."""

import json
import os
import re
import shutil
import signal
import subprocess
import unittest

import recording

# Root has one session daemon per machine; anybody else has one per LTTNG_HOME, so that tests do not meet.
NOBODY = {"user": 65534, "group": 65534, "extra_groups": []}
TOOLS = ("lttng", "lttng-sessiond", "babeltrace2")


def library(name):
    return os.path.join(os.path.dirname(recording.VARVE), name)


def why_not():
    """The reason why nothing can be tested here, or None."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} missing (packages lttng-tools, babeltrace2)"
    if not os.path.exists(library("libvarve_lttng.so")):
        return "built without LTTng (liblttng-ust-dev)"
    return None


def identity():
    """Options of subprocess: nobody instead of root, where nobody may run what is built here."""
    if os.geteuid() != 0:
        return {}
    try:
        able = subprocess.run([recording.VARVE, "help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              check=False, cwd="/", **NOBODY).returncode == 0
    except OSError:
        able = False
    return NOBODY if able else {}


class Case(recording.Case):
    """A test with a session daemon: started before, ended afterwards."""

    has_daemon = True

    def setUp(self):
        super().setUp()
        if why_not():
            self.skipTest(why_not())
        self.home = os.path.join(self.folder, "home")
        os.mkdir(self.home)
        self.identity = identity()
        if self.identity:
            for folder in (self.folder, self.home):
                os.chown(folder, NOBODY["user"], NOBODY["group"])
        self.environment = dict(os.environ, LTTNG_HOME=self.home, LTTNG_UST_HOME=self.home)
        self.daemon = None
        if self.has_daemon:
            self.assertFalse(self.answers(), "a session daemon of somebody else runs: tests need their own")
            self.daemon = subprocess.Popen(["lttng-sessiond", "--no-kernel"], env=self.environment,
                                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                           stderr=subprocess.DEVNULL, start_new_session=True, **self.identity)
            self.addCleanup(self.end_daemon)
            recording.wait_until(self.answers, what="an answer of lttng-sessiond")

    def end_daemon(self):
        """By force: a daemon that lost a program in the middle of its registration keeps that session and waits for it
        without end (LTTng 2.13)."""
        os.killpg(self.daemon.pid, signal.SIGKILL)
        self.daemon.wait()

    def lttng(self, *arguments):
        return subprocess.run(["lttng", "--no-sessiond", *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              **self.identity)

    def answers(self):
        return self.lttng("list").returncode == 0

    def sessions(self):
        return re.findall(r"^\s*\d+\)\s+(\S+)", self.lttng("list").stdout, re.MULTILINE)

    # ---- recording ----

    @property
    def ctf(self):
        return self.path[:-len(".db")] + ".ctf"

    def varve(self, *arguments, status=0, **more):
        outcome = recording.varve(*arguments, env=self.environment, **self.identity, **more)
        self.assertEqual(outcome.returncode, status, outcome)
        return outcome

    def start(self, arguments):
        return recording.start(arguments, env=self.environment, **self.identity)

    def record(self, *command, env=None, **more):
        return super().record(*command, env=env or self.environment, **self.identity, **more)

    def record_both(self, *command, options=(), status=0, **more):
        """Into both sinks; nobody is to lose anything, so a full buffer waits."""
        return self.record(*command, options=["--lttng", "--overflow", "block", *options], status=status, **more)

    def rebuild(self, trace=None):
        """The database that `varve import` makes of the trace."""
        rebuilt = os.path.join(self.folder, "rebuilt.db")
        if recording.IS_SANITIZED:  # the recording went well so far; what reads it is in the plain build
            self.skipTest("the plug-in is not built with sanitizers")
        self.varve("import", "--force", trace or self.ctf, "-o", rebuilt)
        return rebuilt

    def diff(self, rebuilt, status=None):
        outcome = recording.varve("diff", "--events", "--json", self.path, rebuilt, **self.identity)
        self.assertIn(outcome.returncode, (0, 1) if status is None else (status,), outcome)
        return json.loads(outcome.out)

    def assert_equal_sinks(self, **options):
        """Event by event, in all fields; returns how many."""
        rebuilt = self.rebuild(**options)
        found = self.diff(rebuilt, status=0)
        self.open()
        events = self.one("SELECT count(*) FROM event")
        self.open(rebuilt)
        self.assertEqual(self.one("SELECT count(*) FROM event"), events, found)
        return events


def main():
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        raise SystemExit(77)
    recording.main()


__all__ = ["Case", "main", "library", "unittest"]
