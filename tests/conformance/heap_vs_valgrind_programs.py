# SPDX-License-Identifier: Apache-2.0
"""The programs that heap_vs_valgrind compares: what they need, what they read, which commands they run."""

import os
import re
import shutil
import subprocess

from heap_vs_valgrind_match import CollectorTables, FailedReallocs, ThreadIdentities, ThreadVectors

PATH = "/usr/bin:/bin"
FILE_TIME_S = 1000000000


class Program:
    """`steps`: argument lists, run one after the other in one folder. `environment` is added to what all have. `rules`:
    which differences are right, by the executable's name in the table. `prepare`: what is run once before, by itself.
    `is_quick`: also in the quick tier."""

    def __init__(self, name, steps, label="", needs=(), environment=None, normalize=None, files=(), rules=None,
                 prepare=(), is_quick=False):
        self.name, self.label, self.steps, self.files = name, label, steps, files
        self.prepare, self.is_quick = prepare, is_quick
        self.needs = [name, *needs]
        self.environment = environment or {}
        self.normalize = normalize or (lambda text: text)
        self.rules = rules or {}

    def title(self):
        return f"{self.name} ({self.label})" if self.label else self.name

    def missing(self):
        return [need for need in self.needs if not shutil.which(need, path=PATH)]


def words(count, seed=12345):
    """Text of `count` words, the same in every run."""
    state, line, lines = seed, [], []
    for _ in range(count):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        line.append("".join(chr(97 + (state >> shift) % 26) for shift in range(4, 10 + (state >> 8) % 14, 2)))
        if len(line) == 9:
            lines.append(" ".join(line))
            line = []
    return "\n".join(lines) + "\n"


SQL_BUILD = """PRAGMA journal_mode = WAL;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, size INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
  INSERT INTO item SELECT i, 'item ' || (i * 7919 % 3001), i % 97 FROM n;
CREATE INDEX item_name ON item(name);
ANALYZE;
"""
SQL_QUERY = """SELECT size, count(*), min(name), group_concat(id) FROM item GROUP BY size ORDER BY 2 DESC, 1 LIMIT 20;
SELECT a.name, b.id FROM item a JOIN item b ON b.name = a.name WHERE a.id % 100 = 0 ORDER BY 1;
SELECT json_group_array(name) FROM (SELECT name FROM item ORDER BY name LIMIT 50);
"""
# With check_circular json makes an int of each container's address, and valgrind's low addresses make smaller ints.
PYTHON = """import json, re, sys, collections
words = open("words.txt").read().split()
counts = collections.Counter(words)
tree = {word: [word[i:] for i in range(len(word))] for word in words[:500]}
text = json.dumps(tree, sort_keys=True, check_circular=False)
assert json.loads(text) == tree
pattern = re.compile(r"(\\w)(\\w)\\2\\1")
print(len(counts), len(text), sum(bool(pattern.search(word)) for word in words), sys.version_info[0])
"""
# Every wait is one that allocates nothing, and the end waits until the kernel has forgotten the threads.
PYTHON_THREADS = """import _thread, os, time, zlib
data = open("words.txt", "rb").read()
gate, done, results = _thread.allocate_lock(), [_thread.allocate_lock() for _ in range(3)], [0] * 3
def work(i):
    with gate:
        pass
    results[i] = sum(len(zlib.compress(data[k * 64:k * 64 + 4096], i + 1)) for k in range(40))
    done[i].release()
gate.acquire()
for i in range(3):
    done[i].acquire()
    _thread.start_new_thread(work, (i,))
gate.release()
for lock in done:
    lock.acquire()
while os.stat("/proc/self/task").st_nlink > 3:
    time.sleep(0.01)
print(results)
"""
PERL = """use strict; use warnings;
my (%count, @lines);
open(my $in, '<', 'words.txt') or die;
while (my $line = <$in>) { push @lines, $line; $count{lc $_}++ for split ' ', $line; }
my @top = (sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count)[0 .. 9];
print "$_ $count{$_}\\n" for @top;
my $pid = fork(); die unless defined $pid;
if ($pid == 0) { my @copy = map { "$_ " x 3 } @top; print scalar(@copy), "\\n"; exit 0; }
waitpid($pid, 0);
print join(',', map { length } @lines[0 .. 5]), "\\n";
"""
BASH = """set -e
declare -A seen
while read -r a b rest; do seen[$a]=$b; done < more.txt
total=$(( ${#seen[@]} * 2 ))
( x=${seen[*]}; echo ${#x} )
y=$(echo sub; echo shell)
for i in 1 2 3; do printf '%s\\n' "$i" | { read -r z; echo "$z$y"; }; done
/bin/ls / > /dev/null
echo $total
"""
CMAKE = """foreach(i RANGE 50)
  string(REPEAT x ${i} s)
  list(APPEND l ${s})
endforeach()
list(LENGTH l n)
message(STATUS ${n})
"""
# Every function of the family but pvalloc, which valgrind 3.19 does not have; each block has another size.
C_SOURCE = """#define _GNU_SOURCE
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *volatile kept[32];
int main(void)
{
    int n = 0;
    void *volatile none = NULL;
    volatile size_t huge = PTRDIFF_MAX;
    kept[n++] = malloc(101);
    kept[n++] = malloc(0);
    kept[n++] = calloc(3, 35);
    kept[n++] = realloc(none, 106);
    kept[0] = realloc(kept[0], 100007);
    kept[0] = realloc(kept[0], 11);
    free(kept[1]);
    kept[1] = realloc(malloc(12), 0);
    kept[n++] = reallocarray(none, 7, 16);
    kept[4] = reallocarray(kept[4], 9, 1600);
    if (posix_memalign((void **)&kept[n], 4096, 113) == 0)
        n++;
    kept[n++] = aligned_alloc(64, 192);
    kept[n++] = memalign(1 << 16, 115);
    kept[n++] = valloc(116);
    kept[n++] = strdup("seventeen characters");
    kept[n++] = strndup("seventeen characters", 9);
    kept[n++] = malloc(huge);
    kept[n++] = calloc(huge, 3);
    kept[n++] = reallocarray(none, huge, 3);
    void *old = realloc(kept[3], huge);
    free(kept[5]);
    free(kept[6]);
    char *line = NULL;
    size_t size = 0;
    FILE *file = fopen("prog.c", "r");
    while (file && getline(&line, &size, file) > 0)
        n += line[0] == '#';
    free(line);
    fclose(file);
    char *text = NULL;
    if (asprintf(&text, "%s %d %d", (char *)kept[9], n, old == NULL) > 0)
        puts(text);
    return 0;
}
"""
AWK = "{ for (i = 1; i <= NF; i++) n[$i]++ } END { for (w in n) { t += n[w]; "\
      "if (length(w) > m) m = length(w) } print t, m }"


def temporary_names(text):
    """gcc and git name temporary files at random or by process number."""
    return re.sub(r"tmp-\d+-pack", "tmp-N-pack", re.sub(r"/cc\w{6}\b", "/ccN", text))


def numbers(count):
    return "".join(f"{i * 7919 % count}\n" for i in range(count))


IS_FULL = bool(os.environ.get("VARVE_FULL"))
TEXT = ("words.txt", lambda: words(9000 if IS_FULL else 1000))
MORE = ("more.txt", lambda: words(500))
PYTHON3 = "/usr/bin/python3"
COMPILE = ["gcc", "-O1", "-fno-builtin", "-w", "-o", "prog", "prog.c"]
LIST = [
    Program("xz", [["xz", "-2", "-k", "words.txt"], ["xz", "-dc", "words.txt.xz"]], files=[TEXT]),
    # two blocks for two threads: each starts one, whoever is first
    Program("xz", [["xz", "-0", "-T2", "--block-size=65536", "-k", "words.txt"]], label="two threads",
            files=[("words.txt", lambda: words(12000)[:130000])], rules={"xz": [ThreadVectors(2)]}, is_quick=True),
    Program("zstd", [["zstd", "-q", "-3", "-T2", "words.txt"], ["zstd", "-q", "-dc", "words.txt.zst"]],
            label="two threads", files=[TEXT], rules={"zstd": [ThreadVectors(2)]}),
    Program("sqlite3", [["sqlite3", "-batch", "-init", "/dev/null", "t.db", ".read build.sql"],
                        ["sqlite3", "-batch", "-init", "/dev/null", "t.db", ".read query.sql"]],
            files=[("build.sql", lambda: SQL_BUILD), ("query.sql", lambda: SQL_QUERY)]),
    Program("git", [["git", "init", "-q", "-b", "main", "."], ["git", "add", "words.txt"],
                    ["git", "commit", "-q", "-m", "one"], ["git", "log", "--stat"], ["git", "gc", "-q"]],
            environment={"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                         "GIT_COMMITTER_EMAIL": "a@b", "GIT_AUTHOR_DATE": "1700000000 +0000",
                         "GIT_COMMITTER_DATE": "1700000000 +0000", "GIT_CONFIG_NOSYSTEM": "1",
                         "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_COUNT": "1",
                         "GIT_CONFIG_KEY_0": "pack.threads", "GIT_CONFIG_VALUE_0": "1"},
            normalize=temporary_names, files=[TEXT]),
    Program("gcc", [COMPILE], needs=["as", "ld"], normalize=temporary_names, files=[("prog.c", lambda: C_SOURCE)],
            rules={"cc1": [CollectorTables()]}),
    Program("gcc", [["./prog"]], label="what it compiled", files=[("prog.c", lambda: C_SOURCE)], prepare=COMPILE,
            rules={"prog": [FailedReallocs()]}, is_quick=True),
    Program("python3", [[PYTHON3, "-S", "prog.py"]], environment={"PYTHONHASHSEED": "0"},
            files=[TEXT, ("prog.py", lambda: PYTHON)]),
    Program("python3", [[PYTHON3, "-S", "prog.py"]], label="PYTHONMALLOC=malloc",
            environment={"PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc"},
            files=[MORE, ("prog.py", lambda: PYTHON.replace("words.txt", "more.txt"))],
            rules={"python3": [ThreadIdentities()]}),
    Program("python3", [[PYTHON3, "-S", "prog.py"]], label="three threads", environment={"PYTHONHASHSEED": "0"},
            files=[TEXT, ("prog.py", lambda: PYTHON_THREADS)], rules={"python3": [ThreadVectors(3)]}),
    Program("perl", [["perl", "prog.pl"]], label="fork", files=[TEXT, ("prog.pl", lambda: PERL)],
            environment={"PERL_HASH_SEED": "0", "PERL_PERTURB_KEYS": "0"}),
    Program("bash", [["bash", "prog.sh"]], label="forks", files=[MORE, ("prog.sh", lambda: BASH)], is_quick=True),
    Program("sort", [["sort", "--parallel=2", "-S", "16M", "-n", "numbers.txt"]], label="one more thread",
            files=[("numbers.txt", lambda: numbers(150000))], rules={"sort": [ThreadVectors(1)]}),
    Program("grep", [["grep", "-cE", "(a|b)[c-p]+", "words.txt"]], files=[TEXT]),
    Program("sed", [["sed", "-E", "s/([a-m]+)([n-z])/\\2\\1/g", "words.txt"]], files=[TEXT]),
    Program("awk", [["awk", AWK, "words.txt"]], files=[TEXT]),
    Program("tar", [["tar", "--mtime=@1", "-czf", "t.tar.gz", "words.txt", "more.txt"], ["tar", "-tzf", "t.tar.gz"]],
            needs=["gzip"], files=[TEXT, MORE]),
    Program("openssl", [["openssl", "dgst", "-sha256", "words.txt"],
                        ["openssl", "enc", "-aes-256-cbc", "-K", "00" * 32, "-iv", "00" * 16, "-in", "words.txt",
                         "-out", "words.enc"]], files=[TEXT]),
    Program("cmake", [["cmake", "-P", "prog.cmake"]], files=[("prog.cmake", lambda: CMAKE)]),
]
# The same program with one byte more in its environment on one side: a comparison that finds these equal is none.
CONTROL = Program("bash", [["bash", "-c", "exit 0"]], label="control", is_quick=True)


def write_files(program, folder):
    """Old files: git looks again into those that are as new as its index."""
    for name, content in program.files:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(content())
        os.utime(path, (FILE_TIME_S, FILE_TIME_S))
    if program.prepare:
        subprocess.run(program.prepare, cwd=folder, check=True)
