#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 5 s
# Reads damaged input: directories of recordings.
"""Recording directories that somebody prepared, and programs that write what they can reach of a session: no link is
followed, nothing is changed that a recording did not make, no number is counted up to, nothing is loaded for another
process."""

import hashlib
import os
import re
import shutil
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

PYTHON = "/usr/bin/python3"


CHUNK = 1 << 16


def digest(path):
    """Of a file's size and of what it holds that is not zero: most of it are holes."""
    found = hashlib.sha256()
    with open(path, "rb", buffering=0) as stream:
        for number, chunk in enumerate(iter(lambda: stream.read(CHUNK), b"")):
            if chunk != bytes(len(chunk)):
                found.update(f"{number} ".encode() + chunk)
        return found.hexdigest(), stream.tell()


def picture(folder):
    """{path: kind, and what it holds} of all that is in a folder, links as links."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(where, name)
            if os.path.islink(path):
                found[path] = os.readlink(path)
            elif os.path.isfile(path):
                found[path] = digest(path)
            else:
                found[path] = "other"
    return found


class Hostile(recording.Case):
    def setUp(self):
        super().setUp()
        self.place = os.path.join(self.folder, "place")
        os.mkdir(self.place)
        self.photos = os.path.join(self.folder, "photos")
        os.mkdir(self.photos)
        for name in ("p1", "p2.r1", "p1photo.png", "session", "owner", "allocations"):
            self.write(os.path.join(self.photos, name), f"dear {name}\n" * 300)
        self.victim = self.write("victim", "precious\n" * 1000)

    def leave_directory(self, name="left"):
        """What a collector leaves that was killed, with rings in a folder of it."""
        self.path = os.path.join(self.folder, name + ".db")
        self.kill_collector(self.start_recording(recording.program("rmdir_victim"), "0.4", said="started"))
        return self.path + ".d"

    def copy(self, directory, name):
        return recording.copy_directory(directory, os.path.join(self.place, name + ".db.d"))

    def refuse(self, *command):
        before = picture(self.folder)
        self.assert_refused(recording.varve(*command))
        self.assertEqual(picture(self.folder), before)


class Directories(Hostile):
    def test_ring_names_a_folder(self):
        """`ring -> photos` in a folder that is no recording's: photos were deleted."""
        evil = os.path.join(self.place, "evil.db.d")
        os.mkdir(evil, 0o700)
        os.symlink(self.photos, os.path.join(evil, "ring"))
        self.refuse("recover", evil)
        for owner in ("", "123\n", f"{os.getpid():11} {7:016x}\n"):
            self.write(os.path.join(evil, "owner"), owner)
            self.refuse("recover", evil)

    def test_ring_of_a_recording_names_a_folder(self):
        evil = self.copy(self.leave_directory(), "evil")
        shutil.rmtree(os.path.join(evil, "ring"))
        os.chmod(self.photos, 0o700)
        os.symlink(self.photos, os.path.join(evil, "ring"))
        self.refuse("recover", evil)

    def test_ring_of_another_recording(self):
        """The folder in shared memory that another recording uses."""
        other = self.leave_directory("other")
        if not os.path.islink(os.path.join(other, "ring")):
            self.skipTest("rings are not in shared memory here")
        rings = os.readlink(os.path.join(other, "ring"))
        evil = self.copy(self.leave_directory("mine"), "evil")
        shutil.rmtree(os.path.join(evil, "ring"))
        os.symlink(rings, os.path.join(evil, "ring"))
        before = picture(rings)
        self.refuse("recover", evil)
        self.assertEqual(picture(rings), before)

    def test_prepared_owner(self):
        """`record -o x.db` where x.db.d/owner is a link: the file at its end was overwritten."""
        prepared = os.path.join(self.place, "x.db.d")
        os.mkdir(prepared)
        os.symlink(self.victim, os.path.join(prepared, "owner"))
        for mode in (0o755, 0o700):
            os.chmod(prepared, mode)
            self.refuse_both()
        os.unlink(os.path.join(prepared, "owner"))
        os.link(self.victim, os.path.join(prepared, "owner"))
        self.refuse_both()

    def refuse_both(self):
        self.refuse("record", "-o", os.path.join(self.place, "x.db"), "--", "/bin/true")
        self.refuse("recover", os.path.join(self.place, "x.db.d"))

    def test_prepared_folder(self):
        """The recording directory itself is a link."""
        os.symlink(self.photos, os.path.join(self.place, "x.db.d"))
        self.refuse_both()

    def test_links_for_files(self):
        """Each file of a directory in turn is a link, another name, or a pipe."""
        left = self.leave_directory()
        whole = self.copy(left, "whole")
        names = ["allocations", "trace.db-wal", "trace.db-journal", "p7.r1.spill1", "ring/p7.r1.spill2", "ring/p9"]
        for folder in ("", "ring"):
            names += [os.path.join(folder, name) for name in os.listdir(os.path.join(whole, folder))
                      if os.path.isfile(os.path.join(whole, folder, name))]
        makers = {"link": os.symlink, "second name": os.link, "pipe": lambda _, path: os.mkfifo(path)}
        for number, name in enumerate(sorted(set(names))):
            for how, make in makers.items():
                with self.subTest(name=name, how=how):
                    evil = self.copy(whole, f"evil{number}{how[0]}")
                    path = os.path.join(evil, name)
                    if os.path.lexists(path):
                        os.unlink(path)
                    make(self.victim, path)
                    self.refuse("recover", evil)
                    shutil.rmtree(evil)

    def test_not_a_recording(self):
        """Folders that look a little like one."""
        plain = os.path.join(self.place, "plain.db.d")
        shutil.copytree(self.photos, plain)
        for mode in (0o755, 0o700):
            os.chmod(plain, mode)
            self.refuse("recover", plain)
        self.refuse("recover", "-o", os.path.join(self.place, "new.db"), plain)

    def test_open_to_others(self):
        left = self.copy(self.leave_directory(), "left")
        os.chmod(left, 0o770)
        self.refuse("recover", left)
        os.chmod(left, 0o700)
        os.chmod(os.path.join(left, "ring"), 0o777)
        self.refuse("recover", left)

    def test_of_another_user(self):
        self.need_root("only root can give a folder away")
        left = self.copy(self.leave_directory(), "left")
        os.chown(left, 65534, 65534)
        self.refuse("recover", left)
        os.chown(left, 0, 0)
        os.chown(os.path.join(left, "ring"), 65534, 65534)
        self.refuse("recover", left)

    def test_foreign_files_stay(self):
        """In a directory that is a recording's: what it did not make is still there afterwards."""
        left = self.copy(self.leave_directory(), "left")
        mine = {"notes.txt", "p1photo", "p01", "p1.r1.spill", "p1.r1.spill1.bak", "p1.r", "p", "p5000000000",
                "session.old"}
        for name in mine:
            self.write(os.path.join(left, name), name)
            self.write(os.path.join(left, "ring", name), name)
        self.varve("recover", left)
        self.assertEqual(set(os.listdir(left)), mine | {"ring"})
        self.assertEqual(set(os.listdir(os.path.join(left, "ring"))), mine)

    def test_nothing_recorded(self):
        """A collector that died at once: no database is named that is not there."""
        empty = os.path.join(self.place, "empty.db.d")
        os.mkdir(empty, 0o700)
        self.write(os.path.join(empty, "owner"), f"{os.getpid():11} {7:016x}\n")
        outcome = self.varve("recover", empty)
        self.assertIn("nothing is left to recover", outcome.out)
        self.assertEqual(os.listdir(self.place), [])

    def test_modes(self):
        """Nobody else reads what is recorded while it is."""
        process = recording.start(self.record_command(recording.program("churn"), "--seconds", "0.5", "--pace", "20"))
        rings = recording.wait_until(lambda: os.path.lexists(self.path + ".d/ring/p1.r1") and
                                     os.path.realpath(self.path + ".d/ring"), what="the first ring")
        for folder in (self.path + ".d", rings):
            self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700, folder)
        for name in os.listdir(rings):
            self.assertEqual(os.stat(os.path.join(rings, name)).st_mode & 0o777, 0o600, name)
        self.assertEqual(recording.finish(process).returncode, 0)


class Numbers(Hostile):
    """What a program can write into its pages, which are its own memory."""

    HUGE = struct.pack("<I", 0xFFFFFFFF)

    def put(self, directory, name, offset, what):
        with open(os.path.join(directory, "ring", name), "r+b") as stream:
            stream.seek(offset)
            stream.write(what)

    def test_recover(self):
        left = self.copy(self.leave_directory(), "left")
        reference = self.copy(left, "reference")
        self.varve("recover", reference)
        self.open(reference[:-2])
        events = self.one("SELECT count(*) FROM event")
        self.put(left, "counts", 0, self.HUGE)
        self.put(left, "p1", RING_COUNT, self.HUGE)
        self.varve("recover", left)
        self.assert_finished(left[:-2])
        self.assertEqual(self.one("SELECT count(*) FROM event"), events)
        self.assertLess(self.one("SELECT count(*) FROM stats"), 100)

    def test_while_it_records(self):
        """The recording ends. What the others recorded is there, or, where no number is left for them, reported."""
        for number in (2000000, 0xFFFFFFF0):
            with self.subTest(number=number):
                self.check_recording(number)

    def check_recording(self, number):
        source = ("import os, struct\n"
                  "place = os.environ['VARVE_SESSION'] + '/ring/'\n"
                  "for name, offset in (('counts', 0), ('p1', %d)):\n"
                  "    with open(place + name, 'r+b') as stream:\n"
                  "        stream.seek(offset); stream.write(struct.pack('<I', %d))\n" % (RING_COUNT, number))
        script = self.write("hostile.py", source)
        self.record("/bin/sh", "-c", f"{PYTHON} {script}; {recording.program('burst')} 500 61", options=recording.PLAIN)
        self.assert_finished()
        if number < 1 << 22:
            self.assertEqual(self.count("heap_alloc", "size = 61"), 500)
        else:
            self.assertEqual(self.one("SELECT value FROM data_loss WHERE name = 'processes_missing'"), 1)
        self.assertLess(self.one("SELECT count(*) FROM stats"), 100)


class Privilege(Hostile):
    """A program that has given its rights away still has the mappings of before."""

    SOURCE = r"""
import ctypes, json, mmap, os, re, sys
library = sys.argv[1].encode()
libc = ctypes.CDLL(None, use_errno=True)
bytearray(100000)                       # recorded: the session is open
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
said = {"pages": 0, "written": 0}
for line in open("/proc/self/maps"):
    match = re.match(r"([0-9a-f]+)-\S+ (\S+) .*/session$", line.strip())
    if not match:
        continue
    said["pages"] += 1
    address = int(match.group(1), 16)
    both = mmap.PROT_READ | mmap.PROT_WRITE
    writable = "w" in match.group(2) or libc.mprotect(ctypes.c_void_p(address), 4096, both) == 0
    if writable:
        said["written"] += 1
        ctypes.memmove(address + 64, library + b"\0", len(library) + 1)         # sink_path
        ctypes.memmove(address + 64 + 1024, library + b"\0", len(library) + 1)  # replace_path
        ctypes.memmove(address + 60, b"\1\0\0\0", 4)                            # sink
for name in ("session", "counts"):
    try:
        open(os.environ["VARVE_SESSION"] + "/ring/" + name, "r+b").close()
        said["written"] += 1
    except OSError:
        pass
print(json.dumps(said))
"""

    def test_session_page(self):
        """root's next program loads nothing that a child of nobody names."""
        self.need_root("needs root, whose rights a child gives away")
        script = self.write("drop.py", self.SOURCE)
        mark = os.path.join(self.folder, "mark")
        library = os.path.join(recording.PROGRAMS, "lib_unwanted.so")
        self.assertTrue(os.path.exists(library), library)
        os.chmod(self.folder, 0o755)
        outcome = self.record("/bin/sh", "-c", f"{PYTHON} {script} {library}; {recording.program('burst')} 100 61",
                              options=recording.PLAIN, env={**os.environ, "UNWANTED_MARK": mark})
        said = recording.json_lines(outcome.out)[0]
        self.assertGreater(said["pages"], 0, "the session's page was not found: this shows nothing")
        self.assertFalse(os.path.exists(mark), "root's program loaded the library")
        self.assertEqual(said["written"], 0)
        self.assert_recording(may_lose=True)
        self.assertEqual(self.count("heap_alloc", "size = 61"), 100)


def offset_of_ring_count():
    """In struct process_control, from its source."""
    with open(os.path.join(recording.ROOT, "trace", "format", "session_format.h"), encoding="utf-8") as stream:
        text = stream.read()
    body = re.search(r"struct process_control \{(.*?)_Alignas\(64\) uint32_t ring_count", text, re.S).group(1)
    sizes = {"uint64_t": 8, "uint32_t": 4, "int32_t": 4}
    at = 0
    for kind, count in re.findall(r"^\s+(uint64_t|uint32_t|int32_t|char) \w+(?:\[(\d+)\])?;", body, re.M):
        size = sizes.get(kind, 1)
        at = (at + size - 1) // size * size + size * int(count or 1)
    return (at + 63) // 64 * 64


RING_COUNT = offset_of_ring_count()

if __name__ == "__main__":
    recording.main()
