/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command lines that make no sense, or are about the wrong file: each ends with status 2, prints nothing, says why in
 * one line, and makes no file. Files that are damaged, and databases that lack a part, have tests of their own.
 * Costs: 1 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SNAPSHOT VARVE_SOURCE_DIR "/tests/conformance/pytorch/multistream_record.pickle.xz"
#define LOG VARVE_SOURCE_DIR "/tests/golden/training.log"

static const char *const refusals[][2] = {
    /* commands and options */
    {"reprot x.db", "did you mean report?"},
    {"frobnicate", "varve help"},
    {"--json report", "command comes first"},
    {"report --jsno", "did you mean --json?"},
    {"leaks --frobnicate", "varve help leaks"},
    {"report", "missing argument DB\nusage: varve report [OPTIONS] DB\n"},
    {"query x.db", "missing argument SQL\nusage: varve query [OPTIONS] DB SQL\n"},
    {"record", "missing argument COMMAND\nusage: varve record [OPTIONS] [--] COMMAND"},
    {"help report oom", "unexpected argument 'oom'\nusage: varve help [OPTIONS] [COMMAND]\n"},
    {"help nosuch", "there is no command 'nosuch'"},
    {"record --cuda=observe", "one of replace"},
    {"record --torch=replace", "one of observe"},
    {"record --cupti=maybe", "must be yes or no"},
    {"record --overflow=never", "spill, block, drop"},
    {"record --ring-size=5000 true", "power of two"},
    /* selections */
    {"leaks --domain hep small.db", "heap, mmap"},
    {"timeline --pid 1 small.db", "no process 1"},
    {"peak --json --csv small.db", "are mutually exclusive"},
    {"peak --domain storage small.db", "--domain must be one of"},
    {"leaks --domain storage --pid 55 small.db", "no process 55"},
    {"leaks --at noon small.db", "--at must be"},
    {"leaks --from end small.db", "--from must be"},
    {"leaks --at 99999 small.db", "no event 99999"},
    {"leaks --at 100s small.db", "no recorded process ran then"},
    {"leaks --from 5s small.db", "no recorded process ran then"},
    {"leaks --from 2s --to 1s small.db", "before --to"},
    {"leaks --at end --to 1s small.db", "mutually exclusive"},
    {"leaks --at exit-of-main small.db", "no exit of main was recorded"},
    {"leaks --domain storage --at end small.db", "has no --at"},
    {"report small.db --hide ``", "nothing to look for"},
    {"report small.db --hide", "needs a value"},
    /* allocators, and histories */
    {"segments --at 99999999 blocks.db", "there is no event 99999999"},
    {"segments --at -3 blocks.db", "--at must be"},
    {"segments --at `12 parsecs` blocks.db", "--at must be"},
    {"segments --at -1s blocks.db", "--at must be"},
    {"segments --at nans blocks.db", "--at must be"},
    {"segments --at `` blocks.db", "--at must be"},
    {"segments --map --json blocks.db", "--map"},
    {"advise small.db", "no events of a caching allocator"},
    {"advise nosuch.pickle", "nosuch.pickle"},
    {"advise", "give either a TRACE or --attach PID"},
    {"advise --attach 1 " SNAPSHOT, "give either a TRACE or --attach PID"},
    {"advise --for 5 " SNAPSHOT, "--for is for --attach"},
    {"advise --attach 0", "--attach"},
    {"advise --capacity 0 " SNAPSHOT, "--capacity"},
    {"advise --capacity much " SNAPSHOT, "--capacity"},
    {"compare --policies nosuch " SNAPSHOT, "first-fit"},
    {"frontier --policy nosuch " SNAPSHOT, "first-fit"},
    {"compare --policies pytorch:nosuch=1 " SNAPSHOT, "nosuch"},
    {"compare --policies pytorch,nosuch " SNAPSHOT, "nosuch"},
    {"compare --policies , " SNAPSHOT, "polic"},
    {"compare --policies `` " SNAPSHOT, "polic"},
    {"compare --policies pytorch: " SNAPSHOT, "pytorch"},
    {"compare --policies : " SNAPSHOT, "polic"},
    {"compare --conf nosuch:1 " SNAPSHOT, "nosuch"},
    {"compare --memory-limit 1K " SNAPSHOT, "largest request"},
    {"compare --capacity 1K " SNAPSHOT, "largest request"},
    {"compare --capacity many " SNAPSHOT, "--capacity"},
    {"compare --json --csv " SNAPSHOT, "exclusive"},
    {"frontier --policy none --policies none " SNAPSHOT, "exclusive"},
    {"compare small.db", "no events"},
    {"frontier small.db", "no events"},
    {"frontier nosuch.pickle", "nosuch.pickle"},
    {"compare " SNAPSHOT " small.db", "small.db"},
    {"replay nosuch.pickle", "nosuch.pickle"},
    {"bound bad.csv", "bad.csv: line 3: "},
    {"bound absent.csv", "absent.csv"},
    {"bound text", "text"},
    {"bound --alignment 12 three.csv", "power of two"},
    {"bound -o . three.csv", "."},
    {"bound -o three.csv three.csv", "three.csv"},
    {"bound --capacity 4 three.csv", "three.csv: buffer a alone has 5 bytes, more than the capacity of 4"},
    {"bound small.db", "no events of a caching allocator"},
    /* operator logs */
    {"dtr nosuch.log", "nosuch.log"},
    {"dtr", "missing argument LOG"},
    {"dtr --budget=1G --ratio=0.5 " LOG, "mutually exclusive"},
    {"dtr --budget=lots " LOG, "--budget must be bytes"},
    {"dtr --budget=-1 " LOG, "--budget must be bytes"},
    {"dtr --ratio=half " LOG, "--ratio must be"},
    {"dtr --ratio=-0.5 " LOG, "--ratio must be"},
    {"dtr --ratio=1e300 " LOG, "--ratio must be"},
    {"dtr --remat-limit=nan --ratio=1 " LOG, "--remat-limit must be"},
    {"dtr --heuristic=dtreq " LOG, "did you mean dtr-eq"},
    {"dtr --heuristic=something " LOG, "free-neighbours, window"},
    {"dtr --heuristic=window --ratio=1 " LOG, "--mode allocator"},
    {"dtr --search=kinetic --heuristic=random --ratio=1 " LOG, "scan"},
    {"dtr --policy=first-fit " LOG, "--mode allocator"},
    {"dtr --mode=allocator --policy=nosuch " LOG, "no policy 'nosuch'"},
    {"dtr --mode=allocator --conf=nosuch:1 " LOG, "nosuch"},
    {"dtr --sweep=0.1:1 " LOG, "LO:HI:STEP"},
    {"dtr --sweep=0.1:1:0.1:1 " LOG, "LO:HI:STEP"},
    {"dtr --sweep=1:0.1:0.1 " LOG, "LO must not be above HI"},
    {"dtr --sweep=0.1:1:0 " LOG, "STEP not 0"},
    {"dtr --sweep=0.1:1:0.000001 " LOG, "100,000"},
    {"dtr --sweep=0:1G:1 " LOG, "100,000"},
    {"dtr --plot=x.svg " LOG, "--sweep"},
    {"dtr --sweep=0.5:1:0.1 --plot=x.pdf " LOG, ".svg or .png"},
    {"dtr -o x.db " LOG, "--budget or --ratio"},
    {"dtr -o nosuch/x.db --ratio=1 " LOG, "nosuch"},
    /* exports, trees, drawings */
    {"export small.db --to speedscope -o new --view events", "--view is for"},
    {"export small.db --to folded -o new --blocks 3", "--blocks is for"},
    {"export small.db --to csv -o new --pid 3", "--domain and --pid"},
    {"export small.db --to pytorch -o new --domain block", "--domain and --pid"},
    {"export small.db --to pytorch -o new --metric peak", "--metric is for"},
    {"export small.db --to csv -o new --metric peak", "--metric is for"},
    {"export small.db --to pdf -o new", "pdf"},
    {"export small.db --to speedscope", "-o FILE is required"},
    {"export small.db --to csv -o -", "--view"},
    {"export small.db --to csv --view nothing -o new", "has no table or view"},
    {"export small.db --to csv --view `a\" UNION` -o new", "has no table or view"},
    {"export small.db --to csv -o no/where", "cannot be written"},
    {"export small.db --to csv -o other.db.d", "exists already"},
    {"export small.db --to csv -o other.db.d --force", "exists already"},
    {"export small.db --to speedscope -o new --pid 1", "no process 1"},
    {"export small.db --to dtr -o new", "varve_runtime_new_log"},
    {"export small.db --to speedscope -o text", "--force"},
    {"export small.db --to speedscope -o text -f -d sky", "--domain must be"},
    {"export small.db --to speedscope -o no/where", "no/where"},
    {"export text --to speedscope -o new", "text"},
    {"tree --min-share=-1 small.db", "--min-share"},
    {"tree --min-share=101 small.db", "--min-share"},
    {"tree --min-share=nan small.db", "--min-share"},
    {"tree --min-share= small.db", "--min-share"},
    {"tree --depth=0 small.db", "--depth"},
    {"tree --domain=nowhere small.db", "--domain"},
    {"tree --metric=size small.db", "--metric"},
    {"flamegraph small.db", "-o"},
    {"flamegraph -o no/where.svg small.db", "no/where.svg"},
    {"flamegraph -o . -f small.db", "."},
    {"flamegraph -o small.db small.db", "small.db"},
    /* two recordings */
    {"diff small.db", "the second database is missing"},
    {"diff --from=1 small.db blocks.db", "--from"},
    {"diff --from=9 --to=2 small.db", "--from"},
    {"diff --from=9999 small.db", "9999"},
    {"diff --from=1 --metric=peak small.db", "peak"},
    {"diff --from=1 --events small.db", "--events"},
    {"diff --quiet small.db blocks.db", "--quiet"},
    {"diff --tables small.db blocks.db", "--tables"},
    {"diff --domain=nowhere small.db blocks.db", "--domain"},
    {"diff --by=size small.db blocks.db", "--by"},
    {"diff --top=0 small.db blocks.db", "--top"},
    {"diff small.db no.db", "no.db"},
    {"diff text small.db", "text"},
    {"diff small.db cut.db", "cut.db"},
    {"diff --events small.db", "the second database is missing"},
    {"diff --events small.db blocks.db small.db", "small.db"},
    {"diff --events small.db no.db", "no.db"},
    {"diff --events no.db small.db", "no.db"},
    {"diff --events text small.db", "text"},
    {"diff --events --quiet small.db text", "text"},
    {"diff --events --quiet --json small.db blocks.db", "exclusive"},
    {"diff --events --limit=-1 small.db blocks.db", "--limit"},
    /* recordings under way */
    {"top nothing.db", "no recording nothing.db is under way"},
    {"top small.db", "varve report"},
    {"top 1", "records nothing"},
    {"top 99999999999", "no recording"},
    {"top .", "not a recording directory"},
    {"top other.db", "not a recording directory"},
    {"top --every 0.2 small.db", "--every"},
    {"top --sort size small.db", "--sort"},
    {"top -n 0 small.db", "--top"},
    {"top a b", "b"},
};

static int enter(void **state)
{
    static const char three[] = "id,lower,upper,size\na,0,4,5\nb,3,9,5\nc,4,8,4\n";
    static const char bad[] = "id,lower,upper,size\na,1,2,3\nb,4,4,1\n";
    int error = test_folder_small_setup(state);
    trace_database_make("blocks.db", (const char *const[]){"blocks.sql", NULL});
    trace_database_make("cut.db", (const char *const[]){"small.sql", NULL});
    sql_run("cut.db", "DELETE FROM meta WHERE key = 'complete'");
    file_write("three.csv", three, strlen(three));
    file_write("bad.csv", bad, strlen(bad));
    file_write("text", "mine, nothing of the kind", 25);
    file_write("other.db", "", 0);
    assert_int_equal(mkdir("other.db.d", 0700), 0);
    return error;
}

TEST(test_refusals)
{
    static const char *const never[] = {"new", "x.db", "x.svg", "x.pdf", "no"};
    for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
        command_refused(command_run_line(refusals[i][0]), refusals[i][0], refusals[i][1]);
    }
    for (size_t i = 0; i < sizeof(never) / sizeof(never[0]); i++) {
        assert_int_equal(access(never[i], F_OK), -1);
    }
    char *text = file_read("text", NULL);

    assert_string_equal(text, "mine, nothing of the kind");
    free(text);
}

TEST_FILE(enter, test_folder_teardown)
