/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Golden tests: a trace made by hand (small.sql, lossy.sql) in, the answers of the commands out, compared
 * byte by byte with expected/NAME. An answer that changed on purpose: tests/golden/update.sh shows the
 * differences first. With VARVE_GOLDEN_OUT set to a folder the answers are written there instead.
 * Costs: 2 s
 */
#include <cmocka.h>

#include "support/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUERY                                                                                  \
    "SELECT kind, count(*) AS n, sum(size) AS bytes FROM events GROUP BY kind ORDER BY kind; " \
    "SELECT id, name, lost FROM thread ORDER BY id; SELECT 1 AS one WHERE 0"

static const struct {
    const char *name;
    const char *arguments[12];
} cases[] = {
    {"report.txt", {"report", "small.db"}},
    {"report.json", {"report", "--json", "small.db"}},
    {"report_short.txt", {"report", "--top", "1", "--frames", "2", "--stacks", "1", "small.db"}},
    {"report_gpu_all.txt", {"report", "--all", "gpu.db"}},
    {"report_lossy.txt", {"report", "--top", "2", "--stacks", "0", "lossy.db"}},
    {"report_lossy.json", {"report", "--top", "1", "--frames", "1", "--json", "lossy.db"}},
    {"report_nothing.txt", {"report", "nothing.db"}},
    {"report_nothing.json", {"report", "--json", "nothing.db"}},
    {"report_gpu.txt", {"report", "gpu.db"}},
    {"report_gpu.json", {"report", "--top", "1", "--frames", "1", "--json", "gpu.db"}},
    {"info.txt", {"info", "small.db"}},
    {"info_lossy.txt", {"info", "--top", "1", "lossy.db"}},
    {"info_gpu.txt", {"info", "gpu.db"}},
    {"info.json", {"info", "--json", "small.db"}},
    {"leaks.txt", {"leaks", "small.db"}},
    {"leaks_mmap.txt", {"leaks", "--domain", "mmap", "lossy.db"}},
    {"leaks_pid.txt", {"leaks", "--all", "--pid", "4001", "small.db"}},
    {"leaks.csv", {"leaks", "--all", "--csv", "small.db"}},
    {"leaks.json", {"leaks", "--all", "--json", "small.db"}},
    {"leaks_nothing.txt", {"leaks", "nothing.db"}},
    {"peak.txt", {"peak", "small.db"}},
    {"peak_all.txt", {"peak", "--all", "small.db"}},
    {"peak_process.txt", {"peak", "--by", "process", "small.db"}},
    {"peak_size.csv", {"peak", "--by=size", "--csv", "small.db"}},
    {"peak_pid.json", {"peak", "--pid", "4000", "--json", "small.db"}},
    {"peak_nothing.txt", {"peak", "nothing.db"}},
    {"timeline.txt", {"timeline", "small.db"}},
    {"timeline.csv", {"timeline", "--points", "10", "--csv", "small.db"}},
    {"timeline.json", {"timeline", "--points", "3", "--domain", "mmap", "--json", "small.db"}},
    {"timeline_nothing.txt", {"timeline", "nothing.db"}},
    {"segments.txt", {"segments", "blocks.db"}},
    {"segments_at.txt", {"segments", "--at", "13", "--pid=500", "blocks.db"}},
    {"segments_peak.txt", {"segments", "--at", "peak", "--no-map", "blocks.db"}},
    {"segments_nothing.txt", {"segments", "--at=0", "blocks.db"}},
    {"segments.json", {"segments", "--json", "blocks.db"}},
    {"oom.txt", {"oom", "blocks.db"}},
    {"oom.json", {"oom", "--json", "blocks.db"}},
    {"oom_nothing.txt", {"oom", "--device", "1", "blocks.db"}},
    {"leaks_storages.txt", {"leaks", "--domain", "storage", "storages.db"}},
    {"leaks_storages.json", {"leaks", "--domain=storage", "--json", "storages.db"}},
    {"leaks_storages.csv", {"leaks", "--domain=storage", "--csv", "storages.db"}},
    {"leaks_storages_none.txt", {"leaks", "--domain=storage", "small.db"}},
    {"report_storages.txt", {"report", "--top", "2", "storages.db"}},
    {"report_storages.json", {"report", "--top", "1", "--frames", "1", "--json", "storages.db"}},
    {"info_storages.txt", {"info", "storages.db"}},
    {"report_remat.txt", {"report", "remat.db"}},
    {"report_remat.json", {"report", "--json", "remat.db"}},
    {"leaks_gpu.txt", {"leaks", "--all", "--domain", "device", "gpu.db"}},
    {"peak_gpu.txt", {"peak", "--domain=device", "--frames=1", "gpu.db"}},
    {"timeline_gpu.txt", {"timeline", "--domain", "device", "--points", "40", "gpu.db"}},
    {"timeline_gpu.json", {"timeline", "--domain=device", "--device=1", "--points=3", "--json", "gpu.db"}},
    {"query.txt", {"query", "small.db", QUERY}},
    {"query.csv", {"query", "--csv", "small.db", QUERY}},
    {"query.json", {"query", "--json", "small.db", QUERY}},
    {"dtr.txt", {"dtr", "training.log"}},
    {"dtr_allocator.txt", {"dtr", "--mode", "allocator", "--heuristic=dtr-eq", "training.log"}},
    {"dtr_sweep.txt", {"dtr", "--sweep", "0.2:1:0.01", "training.log"}},
    {"dtr_hopeless.txt", {"dtr", "--budget", "64M", "training.log"}},
    {"help_record.txt", {"help", "record"}},
};

static int enter(void **state)
{
    static const struct {
        const char *path, *scripts[4];
    } databases[] = {
        {"nothing.db", {"nothing.sql"}},
        {"small.db", {"small.sql", "user_lines.sql"}},
        {"lossy.db", {"small.sql", "lossy.sql", "user_lines.sql"}},
        {"blocks.db", {"blocks.sql"}},
        {"gpu.db", {"gpu.sql", "user_lines.sql"}},
        {"storages.db", {"storages.sql", "user_lines.sql"}},
        {"remat.db", {"remat.sql"}},
    };
    size_t bytes;
    char *log = file_read(VARVE_SOURCE_DIR "/tests/golden/training.log", &bytes);
    *state = test_folder_enter();
    for (size_t i = 0; i < sizeof(databases) / sizeof(databases[0]); i++) {
        trace_database_make(databases[i].path, databases[i].scripts);
    }
    file_write("training.log", log, bytes);
    free(log);
    return 0;
}

/* The size of a database depends on the version of SQLite that made it. */
static void hide_file_size(char *text)
{
    char *place = strstr(text, "  file      ");
    char *json = strstr(text, "\"file_bytes\":");
    if (place != NULL) {
        char *end = strchr(place, '\n');
        memmove(place + 12, end, strlen(end) + 1);
        place[11] = '-';
        place[10] = ' ';
    }
    if (json != NULL) {
        char *digits = json + strlen("\"file_bytes\":");
        size_t length = strspn(digits, "0123456789");
        memmove(digits + 1, digits + length, strlen(digits + length) + 1);
        digits[0] = '0';
    }
}

static void compare(const char *name, char *out)
{
    const char *folder = getenv("VARVE_GOLDEN_OUT");
    hide_file_size(out);
    char path[4096];
    if (folder != NULL) {
        snprintf(path, sizeof(path), "%s/%s", folder, name);
        file_write(path, out, strlen(out));
        return;
    }
    snprintf(path, sizeof(path), "%s/tests/golden/expected/%s", VARVE_SOURCE_DIR, name);
    char *expected = file_read(path, NULL);
    if (strcmp(expected, out) != 0) {
        size_t at = 0;
        int line = 1;
        for (; expected[at] == out[at]; at++) {
            line += out[at] == '\n' ? 1 : 0;
        }
        fail_msg("%s differs from line %d on; got: %.300s", name, line, out + at);
    }
    free(expected);
}

/* Readable at 100 columns. */
static void check_width(const char *name, const char *out)
{
    for (const char *line = out; *line != '\0'; line += strcspn(line, "\n") + 1) {
        size_t columns = 0;
        for (const char *at = line; *at != '\n' && *at != '\0'; at++) {
            columns += ((unsigned char)*at & 0xc0U) != 0x80U ? 1 : 0;
        }
        if (columns > 100) {
            fail_msg("%s: %zu columns: %.*s", name, columns, (int)strcspn(line, "\n"), line);
        }
    }
}

TEST(test_answers)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct command_outcome outcome = command_run_list(cases[i].arguments);
        if (outcome.status != 0 || outcome.err[0] != '\0') {
            fail_msg("%s: status %d, said: %s", cases[i].name, outcome.status, outcome.err);
        }
        compare(cases[i].name, outcome.out);
        if (strstr(cases[i].name, ".txt") != NULL) {
            check_width(cases[i].name, outcome.out);
        }
        command_outcome_free(&outcome);
    }
}

/* The ten questions of `varve query --examples`, one after the other; of GPU memory: with that domain in place of the
 * heap. */
TEST(test_questions)
{
    static const struct {
        const char *name, *database, *domain;
    } asked[] = {{"questions.csv", "small.db", "'heap'"}, {"questions_block.csv", "gpu.db", "'block'"}};
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        struct command_outcome examples = command_run("query", "--examples", asked[i].database, NULL);
        char *sql = NULL;
        size_t bytes;
        FILE *out = open_memstream(&sql, &bytes);
        for (char *at = examples.out, *heap; *at != '\0'; at = heap + (*heap != '\0' ? strlen("'heap'") : 0)) {
            heap = strstr(at, "'heap'") != NULL ? strstr(at, "'heap'") : at + strlen(at);
            fprintf(out, "%.*s%s", (int)(heap - at), at, *heap != '\0' ? asked[i].domain : "");
        }
        fclose(out);
        struct command_outcome outcome = command_run("query", "--csv", asked[i].database, sql, NULL);

        if (outcome.status != 0) {
            fail_msg("%s: %s", asked[i].name, outcome.err);
        }
        compare(asked[i].name, outcome.out);
        command_outcome_free(&outcome);
        command_outcome_free(&examples);
        free(sql);
    }
}

TEST_FILE(enter, test_folder_teardown)
