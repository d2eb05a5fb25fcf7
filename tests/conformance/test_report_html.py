#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 10 s, full 40 s
# Only with an unsanitized command: records programs.
"""The page of `varve report --html`, in headless Chromium: is it drawn, and does what it answers to clicks and
searches equal what SQL says about the same database? No word of a hostile database may become markup, and nothing may
be loaded."""

import itertools
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import browser  # noqa: E402
import recording  # noqa: E402

PYTORCH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytorch")
PAGE_BYTES_MAX = 10 << 20
QUICK = ("test_drawn", "test_click_shows_what_was_live", "test_search_finds_its_share", "test_tables_sort_and_filter",
         "test_flame_graph_of_what_is_more_and_less",
         "test_hostile_names", "test_nothing", "test_file")

# What was live in a domain after an event, by user's line: naively, from the view of all allocations.
LIVE_SQL = """
    SELECT s.function, s.line, sum(a.size) FROM allocations a LEFT JOIN callsite c ON c.id = a.callsite_id
        LEFT JOIN symbol s ON s.id = coalesce(c.user_symbol_id, c.symbol_id)
    WHERE a.domain = ?1 AND coalesce(a.device, 0) = ?2 AND a.alloc_seq <= ?3
        AND coalesce(a.free_requested_seq, a.free_completed_seq, 9223372036854775807) > ?3
    GROUP BY coalesce(c.user_symbol_id, c.symbol_id) ORDER BY 3 DESC"""


class Folder:
    """Databases and their pages, made once."""

    path = None
    browser = None

    @classmethod
    def open(cls):
        cls.path = tempfile.mkdtemp(prefix="varve-html-")
        cls.browser = browser.Browser()

    @classmethod
    def close(cls):
        cls.browser.close()
        shutil.rmtree(cls.path)

    @classmethod
    def database(cls, name, *command):
        path = os.path.join(cls.path, name + ".db")
        if not os.path.exists(path):
            outcome = recording.varve(*[path if word == "DB" else word for word in command])
            assert outcome.returncode == 0, outcome
        return path


def demo():
    return Folder.database("demo", "record", "-q", "-o", "DB", "--", "/usr/bin/python3",
                           os.path.join(recording.ROOT, "tests", "programs", "demo_numpy.py"))


def replayed(name):
    return Folder.database(name, "replay", os.path.join(PYTORCH, name + ".pickle.xz"), "-o", "DB")


def imported(name):
    return Folder.database(name + "-imported", "import", os.path.join(PYTORCH, name + ".pickle.xz"), "-o", "DB")


def logged(name, count):
    """A log of RMM whose events all have one time: `count` allocations of 1 MiB, of which every other one is freed."""
    path = os.path.join(Folder.path, name + ".csv")
    requests = [("allocate", i) for i in range(count)] + [("free", i) for i in range(0, count, 2)]
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("Thread,Time,Action,Pointer,Size,Stream\n")
        stream.writelines(f"1,12:00:00.000001,{action},{0x7f0000000000 + (i << 20):#x},{1 << 20},0\n"
                          for action, i in requests)
    return Folder.database(name, "import", path, "-o", "DB")


def changed(path, name, *statements):
    """A copy of a database, after some SQL."""
    copy = os.path.join(Folder.path, name + ".db")
    shutil.copy(path, copy)
    with sqlite3.connect(copy) as connection:
        for statement in statements:
            connection.execute(*statement if isinstance(statement, tuple) else (statement,))
    connection.close()
    return copy


class PageCase(unittest.TestCase):
    def show(self, database, is_dark=False):
        self.database, self.page = database, Folder.browser
        page = database.replace(".db", ".html")
        if not os.path.exists(page):
            outcome = recording.varve("report", "--html", page, database)
            self.assertEqual((outcome.returncode, outcome.err), (0, ""), outcome)
            self.assertLess(os.path.getsize(page), PAGE_BYTES_MAX)
        return self.page.open(page, is_dark)

    def tearDown(self):
        if hasattr(self, "page"):
            self.assertEqual(self.page.logged(), [])
            self.assertEqual([url for url in self.page.requested() if not url.startswith("file://")], [])

    def sql(self, statement, *values):
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as connection:
            connection.text_factory = lambda data: data.decode(errors="replace")
            rows = connection.execute(statement, values).fetchall()
        connection.close()
        return rows

    def state(self, part):
        return self.page.run(f"return varve.{part}.state()")

    def check_live(self):
        """The list beside the chart is what SQL finds live then, and both are what the timeline has."""
        shown, live = self.state("timeline"), self.state("live")
        expected = self.sql(LIVE_SQL, shown["domain"], shown["device"], live["seq"])
        self.assertEqual(live["all"], sum(row[2] for row in expected))
        for (allocated,) in self.sql("SELECT allocated FROM timeline WHERE domain = ?1 AND device = ?2 AND seq = ?3",
                                     shown["domain"], shown["device"], live["seq"]):
            self.assertEqual(live["all"], allocated)
        names = self.page.run("return varve.live.state().rows.map(row => varve.data.name(row.at[0]))")
        found = sorted(zip((row["bytes"] for row in live["rows"]), names, (row["at"][2] for row in live["rows"])),
                       key=str)
        largest = expected[:min(len(found), 8)]
        for function, line, size in largest:
            self.assertIn((size, function, line or 0), found)
        self.assertEqual(live["rest"], live["all"] - sum(row["bytes"] for row in live["rows"]))
        return live

    def check_drawn(self, *parts):
        for part in parts:
            self.assertGreater(self.page.colors(f"#{part} canvas"), 3, part)


class TestDemo(PageCase):
    def setUp(self):
        self.show(demo())

    def test_drawn(self):
        for is_dark in (False, True):
            self.show(demo(), is_dark)
            self.check_drawn("timeline", "flame", "map")
            paper = self.page.run("return getComputedStyle(document.body).backgroundColor")
            self.assertEqual(paper == "rgb(255, 255, 255)", not is_dark)
            self.assertEqual(self.page.find("#ladder .absent").text, "No caching allocator was recorded.")
            self.assertIn("nothing lost", self.page.find("#health.good").text)

    def test_click_shows_what_was_live(self):
        seen = set()
        for x in (120, 300, 500, 640, 800):
            self.page.click_at("#timeline canvas", x, 150)
            seen.add(self.check_live()["seq"])
        self.assertGreater(len(seen), 3)
        before = self.state("live")["seq"]
        self.page.press("#live", "\u25b6")
        self.assertGreaterEqual(self.state("live")["seq"], before)
        self.page.press("#live", "peak")
        peak = self.sql("SELECT seq, bytes FROM peak_time WHERE domain = 'heap'")[0]
        self.assertEqual((self.state("live")["seq"], self.check_live()["all"]), peak)

    def test_domain_is_switched(self):
        self.page.choose("#timeline-domain", "mmap")
        self.assertEqual(self.state("timeline")["domain"], "mmap")
        self.page.click_at("#timeline canvas", 600, 150)
        self.check_live()

    def test_zoom_and_pan(self):
        whole = self.state("timeline")
        self.page.press("#timeline", "+")
        half = self.state("timeline")
        self.assertAlmostEqual((half["to"] - half["from"]) / (whole["to"] - whole["from"]), 0.5, 3)
        self.page.drag("#timeline canvas", (400, 150), (500, 150))
        moved = self.state("timeline")
        self.assertLess(moved["from"], half["from"])
        self.assertAlmostEqual(moved["to"] - moved["from"], half["to"] - half["from"], -3)
        self.page.run("document.querySelector('#timeline canvas').focus()")
        browser.ActionChains(self.page.driver).send_keys("+").perform()
        self.assertLess(self.state("timeline")["to"] - self.state("timeline")["from"], moved["to"] - moved["from"])
        browser.ActionChains(self.page.driver).send_keys("0").perform()
        self.assertEqual(self.state("timeline")["to"], whole["to"])
        boxes = self.page.find_all("#timeline canvas")
        self.assertEqual(len(boxes), 2)
        self.page.drag("#timeline .figure-box:nth-of-type(2) canvas", (300, 20), (500, 20))
        brushed = self.state("timeline")
        self.assertLess(brushed["to"] - brushed["from"], 0.5 * (whole["to"] - whole["from"]))
        self.page.press("#map", "addresses +")
        self.assertLess(self.state("blocks")["high"] - self.state("blocks")["low"],
                        0.6 * self.state("blocks")["height"])
        self.check_drawn("timeline", "map")

    def test_wheel(self):
        before = self.state("timeline")
        self.page.run("""const canvas = document.querySelector('#timeline canvas');
            const box = canvas.getBoundingClientRect();
            const wheel = options => canvas.dispatchEvent(new WheelEvent('wheel', {
                clientX: box.left + 400, clientY: box.top + 100, deltaY: -300,
                bubbles: true, cancelable: true, ...options}));
            canvas.blur(); wheel({}); window.plain = varve.timeline.state(); wheel({ctrlKey: true});""")
        self.assertEqual(self.page.run("return window.plain")["to"], before["to"])  # the page scrolls
        self.assertLess(self.state("timeline")["to"] - self.state("timeline")["from"], before["to"] - before["from"])

    def test_hover_says_what_there_is(self):
        self.page.hover_at("#timeline canvas", 500, 150)
        self.assertIn("live", self.page.find("#timeline .readout").text)
        boxes = self.state("flame")["boxes"]
        widest = next(box for box in boxes if box["y"] > 20 and box["width"] > 300)
        self.page.hover_at("#flame canvas", widest["x"] + widest["width"] / 2, widest["y"] + 8)
        self.assertIn(widest["what"], self.page.find(".tip").text)

    def test_search_finds_its_share(self):
        frames = self.sql("SELECT callsite_id, lower(coalesce(function, '') || ' ' || coalesce(file, module, ''))"
                          " FROM frame")
        type_word = "const box = document.getElementById('flame-search'); box.value = arguments[0];"\
                    " box.dispatchEvent(new Event('input'))"
        metrics = {"live at the peak": "peak_bytes", "temporary allocations": "temporary"}
        if recording.IS_FULL:
            metrics = {**metrics, "allocated": "bytes", "live at the end": "live_bytes"}
        for metric, column in metrics.items():
            self.page.choose("#flame-metric", metric)
            sites = self.sql(f"SELECT callsite_id, {column} FROM callsite_total WHERE domain = 'heap'")
            self.assertEqual(self.state("flame")["total"], sum(size for _, size in sites))
            for word in ("multiply_matrices", "demo_numpy.py", "no such function"):
                found = {site for site, text in frames if word in text}
                self.page.run(type_word, word)
                self.assertEqual(self.page.run("return varve.flame.matched"),
                                 sum(size for site, size in sites if site in found), (metric, word))

    def test_flame_is_zoomed_and_inverted(self):
        box = next(box for box in self.state("flame")["boxes"] if box["what"] == "worker")
        self.page.click_at("#flame canvas", box["x"] + box["width"] / 2, box["y"] + 8)
        self.assertEqual((self.state("flame")["root"], self.state("flame")["rootValue"]), ("worker", box["value"]))
        self.page.press("#flame", "reset")
        self.assertTrue(self.state("flame")["root"].startswith("all of"))
        self.page.press("#flame", "inverted")
        state = self.state("flame")
        tree = recording.varve("tree", "--inverted", "--json", "--min-share", "0", "--top", "1000000", "--depth", "1",
                               self.database)
        self.assertEqual(tree.returncode, 0, tree)
        children = [node for node in json.loads(tree.out)["nodes"] if node["depth"] == 1]
        first = [box for box in state["boxes"] if 0 < box["y"] < 30]
        expected = sorted((child["bytes"] for child in children), reverse=True)
        self.assertEqual(state["total"], sum(expected))
        self.assertEqual(sorted((box["value"] for box in first), reverse=True)[:8], expected[:8])

    def test_tables_sort_and_filter(self):
        column = "#table-domains tbody td:nth-child(5)"
        head = self.page.find("#table-domains th:nth-child(5) button")
        self.page.run("arguments[0].scrollIntoView({block: 'center'})", head)
        values = "return [...document.querySelectorAll(arguments[0])]"\
                 ".map(cell => Number(cell.title.replace(/[^0-9]/g, '')))"
        head.click()
        down = self.page.run(values, column)
        self.assertEqual(down, sorted(down, reverse=True))
        head.click()
        up = self.page.run(values, column)
        self.assertEqual(up, sorted(up))
        self.assertEqual(down[0], self.sql("SELECT sum(bytes) FROM callsite_total GROUP BY domain, user_function,"
                                           " user_file, user_line ORDER BY 1 DESC LIMIT 1")[0][0])
        box = self.page.find("#table-domains input")
        box.send_keys("multiply_matrices")
        rows = self.page.run("return [...document.querySelectorAll('#table-domains tbody tr')].map(row =>"
                             " row.textContent)")
        self.assertTrue(rows and all("multiply_matrices" in row for row in rows), rows)


class TestParts(PageCase):
    """The flame graph of a moment, of a span of time, of a thread, without imports, of one kind of frames; and the list
    by line below it."""

    def setUp(self):
        self.show(demo())

    def check_lines(self, condition, *values):
        """The sum, and the lines of the list, are those of the allocations that the condition picks."""
        rows = self.sql(f"""SELECT s.function, sum(a.size) FROM allocation a
            LEFT JOIN callsite c ON c.id = a.callsite_id
            LEFT JOIN symbol s ON s.id = coalesce(c.user_symbol_id, c.symbol_id)
            WHERE a.domain = 1 AND {condition} GROUP BY s.id ORDER BY 2 DESC""", *values)
        state = self.state("flame")
        self.assertEqual(state["total"], sum(size for _, size in rows))
        self.page.run("document.getElementById('flame-lines').parentNode.open = true")
        lines = self.page.run("""return [...document.querySelectorAll('#flame-lines .live-row')].map(row =>
            [row.querySelector('.who').firstChild.textContent, row.title.split('\\n')[0]])""")
        named = [name for name, _ in lines if name not in ("(no name)", "all other lines")]
        self.assertEqual(named[:3], [name for name, _ in rows if name][:3])
        return state

    def test_moment_drives_the_flame_graph(self):
        self.page.choose("#flame-metric", "live at the chosen moment")
        totals = set()
        for x in (200, 500, 800):
            self.page.click_at("#timeline canvas", x, 150)
            self.page.settle()
            seq = self.state("live")["seq"]
            state = self.check_lines("a.alloc_seq <= ? AND ifnull(a.free_requested_seq, 1 << 60) > ?", seq, seq)
            self.assertEqual(state["total"], self.state("live")["all"])
            totals.add(state["total"])
        self.assertGreater(len(totals), 1)

    def test_span_drives_the_flame_graph(self):
        self.page.choose("#flame-metric", "allocated in the time that is shown")
        for press in ("+", "\u25b6", "+"):
            self.page.press("#timeline", press)
            self.page.settle()
            state = self.state("flame")
            self.assertLess(state["from"], state["to"])
            self.check_lines("a.alloc_seq > ? AND a.alloc_seq <= ?", state["from"], state["to"])
        self.page.choose("#flame-metric", "more live at the end of the time that is shown")
        state, live = self.state("flame"), "alloc_seq <= {0} AND ifnull(free_requested_seq, 1 << 60) > {0}"
        begin, end = live.format(state["from"]), live.format(state["to"])
        sites = self.sql(f"""SELECT sum(({end}) * size) - sum(({begin}) * size)
            FROM allocation WHERE domain = 1 GROUP BY callsite_id, tid""")
        rest = self.page.run("""const made = row => row.leaf > 0 ? 0 : d3.sum(row.cells, cell => cell.made);
            return d3.sum(varve.spans.chosen('heap', {process: 0, thread: 0}, made, () => false), row => row.bytes)""")
        self.assertLess(rest, state["total"] / 100)
        self.assertAlmostEqual(state["total"], sum(size for size, in sites if size > 0), delta=rest)

    def test_thread(self):
        threads = self.sql("SELECT tid FROM allocation WHERE domain = 1 GROUP BY tid ORDER BY sum(size) DESC")
        self.assertGreater(len(threads), 2)
        names = self.page.run("return [...document.getElementById('flame-whose').options].map(one => one.text)")
        for tid, in threads[:3]:
            self.page.choose("#flame-whose", next(name for name in names if f"thread {tid}" in name))
            self.page.choose("#flame-metric", "allocated")
            self.check_lines("a.tid = ?", tid)
            self.page.choose("#flame-metric", "live at the peak")
            peak = self.sql("SELECT peak_seq FROM total WHERE domain = 'heap'")[0][0]
            self.check_lines("a.tid = ? AND a.alloc_seq <= ? AND ifnull(a.free_requested_seq, 1 << 60) > ?", tid, peak,
                             peak)
            self.page.choose("#flame-metric", "live at the end")
            self.check_lines("a.tid = ? AND a.id IN (SELECT id FROM leak)", tid)
        self.page.choose("#flame-metric", "temporary allocations")
        self.assertIn("of the whole recording", self.page.run("return varve.flame.note.textContent"))

    def imports(self):
        """Call sites whose stack has frames of Python's import system."""
        return {site for site, in self.sql("""SELECT DISTINCT callsite_id FROM frame WHERE is_python
            AND (file LIKE '<frozen importlib%' OR file LIKE '%/importlib/\\_bootstrap%' ESCAPE '\\')""")}

    def test_without_imports(self):
        self.page.choose("#flame-metric", "allocated")
        self.page.press("#flame", "without imports")
        hidden = self.imports()
        self.assertGreater(len(hidden), 10)
        sites = self.sql("SELECT callsite_id, bytes FROM callsite_total WHERE domain = 'heap'")
        wanted = sum(size for site, size in sites if site not in hidden)
        for _ in range(2):
            self.assertEqual(self.state("flame")["total"], wanted)
            self.page.press("#flame", "inverted")

    def test_click_on_a_block_shows_its_stack(self):
        self.page.choose("#map-of", "heap")
        one = self.state("blocks")["largest"]
        self.page.click_at("#map canvas", one["x"], one["y"])
        self.assertIn(one["addr"], self.page.find("#map-stack h3").text)
        sites = self.sql("SELECT DISTINCT callsite_id FROM allocation WHERE domain = 1 AND size = ? AND addr = ?",
                         one["size"], int(one["addr"], 16))
        self.assertEqual(len(sites), 1)
        stack = [function for function, in self.sql(
            "SELECT function FROM frame WHERE callsite_id = ? AND user_rank > 2 ORDER BY depth", sites[0][0])]
        line = self.sql("SELECT user_function FROM callsite_total WHERE callsite_id = ?", sites[0][0])[0][0]
        shown = self.page.run("return [...document.querySelectorAll('#map-stack .stack-row')].map(row =>"
                              " row.firstChild.textContent)")
        self.assertEqual(shown, [name for name, _ in itertools.groupby(stack)] or [line])

    def test_source(self):
        """Around the line of a box and of a row; what has changed since the recording is not there."""
        path = os.path.join(recording.ROOT, "tests", "programs", "demo_numpy.py")
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().split("\n")
        boxes = [box for box in self.state("flame")["boxes"] if box["what"] == "multiply_matrices"]
        widest = max(boxes, key=lambda box: box["width"])
        self.page.click_at("#flame canvas", widest["x"] + widest["width"] / 2, widest["y"] + 8)
        here = self.page.find("#flame-source .here").text
        self.assertIn(lines[int(here.split()[0]) - 1].strip(), here)
        row = self.page.find("#live .has-source")
        self.page.run("arguments[0].scrollIntoView({block: 'center'})", row)
        row.click()
        here = self.page.find("#live .source .here").text
        number = int(here.split()[0])
        self.assertIn(f"demo_numpy.py:{number}", row.text)
        self.assertIn(lines[number - 1].strip(), here)
        row.click()
        self.assertEqual(self.page.find_all("#live .source"), [])
        later = changed(self.database, "changed", "UPDATE meta SET value = 1000000000 WHERE key = 'start_real_ns'")
        self.show(later)
        self.assertEqual(self.page.run("return varve.data.part('source')"), [])

    def test_source_is_source(self):
        """A database may name any file."""
        secret = os.path.join(Folder.path, "secret.txt")
        with open(secret, "w", encoding="utf-8") as stream:
            stream.write("nobody else's\n" * 200)
        link = os.path.join(Folder.path, "pipe.py")
        os.mkfifo(link)
        path = changed(self.database, "curious", ("UPDATE symbol SET file = ?, line = 1 WHERE id % 3 = 0", (secret,)),
                       ("UPDATE symbol SET file = ?, line = 1 WHERE id % 3 = 1", (link,)),
                       "UPDATE symbol SET file = 'demo_numpy.py', line = 1 WHERE id % 3 = 2")
        self.show(path)
        self.assertEqual(self.page.run("return varve.data.part('source')"), [])
        page = recording.varve("report", "--html", "-", "--no-source", demo())
        self.assertIn('id="data-source">[]<', page.out)

    def test_kinds_of_frames(self):
        whole = self.state("flame")["total"]
        kinds = """const seen = new Set(), names = varve.flame.state().boxes;
            return names.filter(box => box.y > 0).map(box => box.isPython)"""
        for kind, is_python in (("Python", True), ("native", False)):
            self.page.choose("#flame-kind", kind)
            self.assertEqual(self.state("flame")["total"], whole)
            self.assertEqual(set(self.page.run(kinds)), {is_python})


CHANGING = """
import sys
is_after = sys.argv[1] == "after"
def load(count):
    return [bytearray(1000) for _ in range(count)]
def parse():
    return bytearray(4 << 20)
def gone():
    return bytearray(3 << 20)
def added():
    return bytearray(5 << 20)
kept = [load(6000 if is_after else 2000), parse(), added() if is_after else gone()]
"""

# What each stack had live at the peak of the heap, and live at the end: by its frames, naively.
STACKS_SQL = """
    SELECT a.callsite_id,
        sum(size * (a.alloc_seq <= t.peak_seq AND ifnull(a.free_completed_seq, 1 << 60) > t.peak_seq)),
        sum(size * (a.id IN (SELECT id FROM leak))), sum(size)
    FROM allocation a JOIN total t ON t.domain = 'heap' WHERE a.domain = 1 GROUP BY a.callsite_id"""


class TestBefore(PageCase):
    """The page of `varve diff --html`."""

    def setUp(self):
        program = os.path.join(Folder.path, "changing.py")
        with open(program, "w", encoding="utf-8") as stream:
            stream.write(CHANGING)
        self.before, self.after = (Folder.database(side, "record", "-q", "-o", "DB", "--", "/usr/bin/python3", program,
                                                   side) for side in ("before", "after"))
        page = os.path.join(Folder.path, "two.html")
        outcome = recording.varve("diff", "--force", "--html", page, self.before, self.after)
        self.assertEqual((outcome.returncode, outcome.err), (0, ""), outcome)
        self.database, self.page = self.after, Folder.browser
        self.page.open(page)

    def stacks(self, database):
        """Figures by the frames of the stack."""
        self.database, frames, sums = database, {}, {}
        for site, *frame in self.sql("SELECT callsite_id, function, file, line, iif(function IS NULL, module, '')"
                                     " FROM frame ORDER BY callsite_id, depth"):
            frames.setdefault(site, []).append(tuple(frame))
        for site, *figures in self.sql(STACKS_SQL):
            key = tuple(frames.get(site, ()))
            sums[key] = [one + other for one, other in zip(sums.get(key, (0, 0, 0)), figures)]
        return sums

    def test_flame_graph_of_what_is_more_and_less(self):
        before, after = self.stacks(self.before), self.stacks(self.after)
        none = (0, 0, 0)
        self.page.choose("#flame-domain", "heap")
        self.assertEqual(self.state("flame")["metric"], "more peak", "which is what was asked for")
        for at, figure in enumerate(("live at the peak", "live at the end", "allocated")):
            for sign, word in ((1, "more"), (-1, "less")):
                self.page.choose("#flame-metric", f"{word} {figure} than before")
                changes = [sign * (after.get(key, none)[at] - before.get(key, none)[at])
                           for key in {*before, *after}]
                self.assertEqual(self.state("flame")["total"], sum(change for change in changes if change > 0),
                                 f"{word} {figure}")
        self.page.choose("#flame-metric", "more live at the end than before")
        boxes = {box["what"]: box["value"] for box in self.state("flame")["boxes"]}
        self.assertEqual(boxes["added"] >> 20, 5)
        self.assertEqual(boxes["load"] // 100000, 40)
        self.assertNotIn("gone", boxes)
        self.page.choose("#flame-metric", "less live at the end than before")
        boxes = {box["what"]: box["value"] for box in self.state("flame")["boxes"]}
        self.assertEqual(boxes["gone"] >> 20, 3)
        self.assertEqual(len([box for box in self.state("flame")["boxes"] if box["what"] == "<module>"]), 1,
                         "what both have is one box")
        self.page.press("#flame", "inverted")
        top = [box["what"] for box in self.state("flame")["boxes"] if box["y"] == 19]
        self.assertEqual(top[0], "gone")

    def test_curves_and_tables(self):
        self.page.choose("#timeline-domain", "heap")
        self.database = self.before
        peak = self.sql("SELECT peak_bytes FROM total WHERE domain = 'heap'")[0][0]
        self.assertEqual(self.state("timeline")["before"], peak)
        self.assertIn(f"before: {self.page.run('return varve.format.bytes(arguments[0])', peak)}",
                      self.page.find("header .totals").text)
        self.assertIn(self.before, self.page.find("#compared").text)
        rows = [row.text.split() for row in self.page.find_all("#table-changed_lines tbody tr")]
        self.assertEqual([row[1] for row in rows[:3] if row[0] == "heap"], ["new", "grew", "gone"])
        diff = json.loads(recording.varve("diff", "--json", "--top", "10000", self.before, self.after).out)
        entries = [(domain["domain"], entry["change"]["peak_bytes"]) for domain in diff["domains"]
                   for entry in domain["entries"]]
        shown = self.page.run("""const table = varve.data.part("tables").find(one => one.key === "changed_lines");
            return d3.range(0, table.rows.length, table.kinds.length).map(i =>
                [varve.data.name(table.rows[i]), table.rows[i + 4]])""")
        self.assertEqual(sorted(map(tuple, shown)), sorted(entries))

    def test_refusals(self):
        for words, reason in (([self.before, "--from", "1"], "of what two whole databases had"),
                              ([self.before, self.after, "--events"], "of what two whole databases had"),
                              ([self.before, self.after, "--json"], "--html and --json exclude each other"),
                              ([self.before, self.after, "--html", self.before, "--force"], "before.db")):
            outcome = recording.varve("diff", "--html", os.path.join(Folder.path, "two.html"), *words)
            self.assertEqual(outcome.returncode, 2, outcome)
            self.assertEqual(len(outcome.err.splitlines()), 1, outcome.err)
            self.assertIn(reason, outcome.err)
        outcome = recording.varve("diff", "--force", self.before, self.after)
        self.assertIn("go with --html", outcome.err)


class TestAllocator(PageCase):
    def check_allocator(self, database, has_ladder):
        self.show(database)
        self.check_drawn("timeline", "flame", "map")
        self.assertEqual(self.state("timeline")["domain"], "block")
        for x in (150, 420, 700):
            self.page.click_at("#timeline canvas", x, 150)
            self.check_live()
        if has_ladder:
            self.check_drawn("ladder")
            self.assertTrue(self.page.run("return varve.ladder.addsUp()"))
        most = self.page.run("return Math.max(...varve.data.part('ladder').flatMap(one =>"
                             " [...varve.data.sums(one.reserved)]), 0)")
        self.assertEqual(most, self.sql("SELECT coalesce(max(reserved), 0) FROM ladder")[0][0])

    def test_replayed(self):
        self.check_allocator(replayed("gpt2_train_limit" if recording.IS_FULL else "multistream_record"), True)
        self.assertIn("No stack was recorded", self.page.find("#live").text)

    def test_replayed_with_stacks(self):
        self.check_allocator(replayed("resnet50_train_stacks"), True)
        segments = self.page.run("return varve.data.part('maps')[0].segments.length / 6")
        self.assertEqual(segments, self.sql("SELECT count(*) FROM segment")[0][0])

    def test_imported(self):
        self.check_allocator(imported("resnet50_train_stacks"), False)

    def test_moments_of_one_time(self):
        """The page opens with the peak, which is none of the first events of its time; a choice by time is of what
        was live after it."""
        self.show(logged("one-time", 100))
        self.assertEqual(self.sql("SELECT count(DISTINCT ts_ns) FROM timeline"), [(1,)])
        peak = self.sql("SELECT seq, bytes FROM peak_time")[0]
        self.assertEqual((self.state("live")["seq"], self.check_live()["all"]), peak)
        self.page.run("varve.live.choose(0)")
        self.assertEqual((self.state("live")["seq"], self.check_live()["all"]),
                         self.sql("SELECT seq, allocated FROM timeline ORDER BY seq DESC LIMIT 1")[0])
        self.page.press("#live", "peak")
        self.assertEqual((self.state("live")["seq"], self.check_live()["all"]), peak)

    def test_rows_of_the_timeline(self):
        """All that are stored are points; what is said of a moment is of one of them."""
        self.show(changed(replayed("synthetic_oom"), "fallen", "DELETE FROM sample",
                          "WITH RECURSIVE row(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM row WHERE i < 9999) INSERT"
                          " INTO sample "
                          "SELECT 0, 4, 0, i + 1, i * 1000, 750, 750, 750, iif(i % 2 = 0, 4000, 1000), 750, 1 FROM"
                          " row"))
        series = self.page.run("const {t, reserved} = varve.data.part('curves').series.find(one => one.domain ==="
                               " 'block' && one.process === 0);"
                               "return {count: t.length, most: Math.max(...varve.data.sums(reserved))}")
        self.assertEqual(series, {"count": 10000, "most": 4000})
        self.page.run("varve.figure.setView(0, 1e7)")
        self.page.hover_at("#timeline canvas", 500, 150)
        text = self.page.find("#timeline .readout").text
        self.assertRegex(text, "live 750 B.* reserved (1000 B, of which not allocated 25.0|3.91 KiB, of which not"
                               " allocated 81.3) %")

    def test_failures_are_marked(self):
        self.show(replayed("synthetic_oom"))
        failures = self.page.run("return varve.data.part('curves').failures.map(one => [one.seq, one.bytes])")
        self.assertEqual([tuple(one) for one in failures], self.sql("SELECT seq, requested FROM oom ORDER BY seq"))
        x = self.page.run("return varve.timeline.pixelOf(varve.data.part('curves').failures[0].t)")
        self.page.hover_at("#timeline canvas", x, 100)
        self.assertIn("refused", self.page.find(".tip").text)


class TestProcesses(PageCase):
    def test_each_peak_is_a_moment(self):
        program = "for size in 9 5 7: x = [bytes(1000 + i) for i in range(size * 1000)]; x = None"
        self.show(Folder.database("processes", "record", "-q", "-o", "DB", "--", "/bin/sh", "-c",
                                  f"/usr/bin/python3 -c '{program}'; /usr/bin/python3 -c '{program}' x; exit 0"))
        peaks = self.sql("SELECT process_id, peak_seq FROM total_process WHERE domain = 'heap' AND peak_bytes > 0")
        self.assertGreater(len(peaks), 2)
        self.assertLessEqual({seq for _, seq in peaks},
                             set(self.page.run("return varve.data.sums(varve.data.part('live').seq)")))
        found = self.page.run("return varve.data.part('curves').series.filter(one => one.domain === 'heap' &&"
                              " one.process > 0).map(one => [one.process, one.peak_seq])")
        self.assertEqual(sorted(map(tuple, found)), sorted(peaks))


class TestBadInput(PageCase):
    def test_totals_only(self):
        path = Folder.database("totals", "record", "-q", "--keep", "totals", "-o", "DB", "--", "/usr/bin/python3", "-c",
                               "x = [bytes(1000) for _ in range(500)]")
        self.show(path)
        for part in ("#live", "#map"):
            self.assertIn("--keep totals", self.page.find(f"{part} .absent").text)
        self.assertIn("--keep totals", self.page.find("#ladder .absent").text)
        self.check_drawn("timeline", "flame")

    def test_without_stacks(self):
        path = Folder.database("stackless", "record", "-q", "--stacks", "none", "-o", "DB", "--", "/bin/ls", "/")
        self.show(path)
        self.assertIn("no stacks", self.page.find("#flame").text)
        self.check_drawn("timeline", "map")

    def test_nothing(self):
        tables = [row[0] for row in sqlite3.connect(demo()).execute("SELECT name FROM sqlite_schema WHERE type ="
                                                                    " 'table' AND name IN ("
                  "'allocation_row', 'event_row', 'callsite_stat_row', 'total_stat', 'sample', 'size_stat',"
                  " 'rss_sample', 'thread', 'process')")]
        self.show(changed(demo(), "nothing", *[f"DELETE FROM {table}" for table in tables]))
        for part in ("#timeline", "#flame", "#map"):
            self.assertEqual(self.page.find(f"{part} .absent").text, "No allocation was recorded.")

    def test_totals_are_missing(self):
        """As no recording leaves it: each part is there for itself."""
        self.show(changed(demo(), "no-totals", "DELETE FROM total_stat WHERE process_id = 0"))
        self.check_drawn("map")
        self.page.click_at("#map canvas", 600, 100)

    def test_lost_events_are_seen(self):
        self.show(changed(demo(), "lossy", "UPDATE thread SET lost = 75, emitted = emitted + 75, lost_bytes = 12345"
                                           " WHERE id = 1"))
        health = self.page.find("#health.bad")
        self.assertTrue(health.is_displayed())
        self.assertIn("DATA LOSS", health.text)

    def test_hostile_names(self):
        script = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
        names = [script, "<!--<script>", "a\u2028b\u2029c", "tab\there\x1b[31m",
                 "x" * (1 << 20 if recording.IS_FULL else 1 << 16), "'\"`${1}&amp;\\"]
        statements = [("UPDATE meta SET value = ? WHERE key = 'command'", (script,))]
        for i, name in enumerate(names):
            statements.append(("UPDATE symbol SET function = ?1, file = ?1 WHERE id % 8 = ?2", (name, i)))
        statements.append("UPDATE symbol SET function = 'nul' || char(0) || 'nul' WHERE id % 8 = 6")
        statements.append("UPDATE symbol SET function = CAST(x'c3284fff' AS TEXT) WHERE id % 8 = 7")
        statements.append(("INSERT INTO mark(name, pid, tid, begin_seq, end_seq, begin_ns, end_ns, process_id) VALUES"
                           " (?, 1, 1, 1, 9000, 0, 900000000, 1)", (script,)))
        self.show(changed(demo(), "hostile", *statements))
        self.check_drawn("timeline", "flame", "map")
        self.assertIsNone(self.page.run("return window.hacked || null"))
        self.assertEqual(self.page.find_all("main img, header img"), [])
        self.assertTrue(self.page.find("h1").text.startswith("</script>"))
        self.page.choose("#timeline-domain", "heap")
        for x in (200, 600):
            self.page.click_at("#timeline canvas", x, 150)
            self.page.hover_at("#flame canvas", x, 30)
        self.assertIn("<img src=x", self.page.run("return document.getElementById('live-list').textContent"))
        self.assertLess(os.path.getsize(self.database.replace(".db", ".html")), 4 << 20)


class TestCommand(unittest.TestCase):
    def assert_refused(self, page, database, *options):
        outcome = recording.varve("report", *options, "--html", page, database)
        self.assertEqual((outcome.returncode, outcome.out, len(outcome.err.splitlines())), (2, "", 1), outcome)

    def test_file(self):
        page = os.path.join(Folder.path, "there.html")
        with open(page, "w", encoding="utf-8") as stream:
            stream.write("mine")
        self.assert_refused(page, demo())
        with open(page, encoding="utf-8") as stream:
            self.assertEqual(stream.read(), "mine")
        self.assert_refused(os.path.join(Folder.path, "no", "such", "folder.html"), demo())
        self.assertEqual(recording.varve("report", "--json", "--html", page, demo()).returncode, 2)

    def test_standard_output(self):
        out = subprocess.run([recording.VARVE, "report", "--html", "-", demo()], capture_output=True, check=True).stdout
        self.assertTrue(out.startswith(b"<!doctype html>") and out.rstrip().endswith(b"</html>"))
        out.decode()

    def test_leaks(self):
        """Beside the charts; with --hide, whose tables one connection has, after them."""
        for options in ([], ["--hide", "remember_forever"]):
            leaks = json.loads(recording.varve("leaks", "--json", *options, demo()).out)["lines"]
            page = recording.varve("report", "--html", "-", *options, demo()).out
            self.assertGreater(len(leaks), 0)
            for line in leaks:
                self.assertIn(json.dumps(line["evidence"]), page, options)

    def test_damaged(self):
        for view in ("timeline", "leak_line"):  # the leaks are read beside the rest
            path = changed(demo(), "damaged_" + view, "DROP VIEW " + view)
            self.assert_refused(path + ".html", path)
            self.assertFalse(os.path.exists(path + ".html"))


def setUpModule():
    Folder.open()


def tearDownModule():
    Folder.close()


def load_tests(loader, cases, pattern):  # pylint: disable=unused-argument
    """Each of them takes half a second of Chromium: the quick tier has one of each part of the page."""
    chosen = unittest.TestSuite()
    for case in (case for of_class in cases for case in of_class):
        if recording.IS_FULL or case.id().split(".")[-1] in QUICK:
            chosen.addTest(case)
    return chosen


if __name__ == "__main__":
    browser.skip_without()
    recording.main()
