/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database of 10 M events, made by the code that `varve record` makes one with (derive and store), and what
 * it takes: bytes per event before the derived tables and after, the time of `varve report` and other commands, and of
 * the ten questions of `varve query --examples`.
 *
 * The events are those of a program with four threads and 5,000 call sites of 12 frames each, some of which
 * are used much more than others; most blocks die young, a few live long, some never end. What is not
 * measured here is how fast the database is made: bench_sqlite.c.
 *
 *   bench_report [EVENTS]        default: $VARVE_BENCH_REPORT_EVENTS, or 10000000
 */
#include "bench/bench.h"
#include "support/random.h"
#include "trace/error.h"
#include "trace/model/derive/derive.h"
#include "trace/model/event.h"
#include "trace/record.h"
#include "trace/store/derived.h"
#include "trace/store/rows.h"
#include "trace/store/stack_nodes.h"
#include "trace/store/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define EVENTS_DEFAULT 10000000U
#define REPETITIONS 3
#define THREADS 4U
#define CALLSITES 5000U
#define SYMBOLS 9000U
#define DEPTH 12U
#define SLOTS 65536U   /* blocks that can be live at the same time, those that never end aside */
#define SLOTS_HOT 256U /* most allocations use these: short lives */
#define COMMIT_EVENTS 65536U

struct maker {
    struct store *store;
    struct derive *derive;
    uint64_t random;
    uint64_t seq;
    uint64_t next_addr;
    int64_t ts_ns;
    uint64_t of_thread[THREADS];
    uint64_t live[SLOTS];
};

/* Small numbers much more often than large ones, below `limit`. */
static uint32_t random_skewed(uint64_t random, uint32_t limit)
{
    uint64_t unit = random & 0xffff;
    return (uint32_t)((unit * unit >> 16) * (random >> 16 & 0xffff) * limit >> 32);
}

/* Sizes of a usual program: small ones mostly, a power of two more with each step. */
static uint64_t random_size(uint64_t random)
{
    unsigned shift = (unsigned)__builtin_ctzll(random | 1U << 12);
    return 8 + (random >> 32) % (UINT64_C(24) << shift);
}

static void event_next(struct maker *maker, struct event *event)
{
    uint64_t random = random_next(&maker->random);
    uint32_t slot = (uint32_t)(random % 8 != 0 ? (random >> 8) % SLOTS_HOT : (random >> 8) % SLOTS);
    uint32_t thread = slot % THREADS;
    maker->ts_ns += 20 + (int64_t)(random >> 32) % 300;
    *event = (struct event){.seq = ++maker->seq, .ts_ns = maker->ts_ns, .process_id = 1, .pid = 31415};
    event->thread_id = 1 + thread;
    maker->of_thread[thread]++;
    event->tid = 31415 + (int32_t)thread;
    if (maker->live[slot] != 0) {
        event->kind = VARVE_KIND_HEAP_FREE;
        event->cause = VARVE_CAUSE_FREE;
        event->addr = maker->live[slot];
        event->callsite = 1 + random_skewed(random_next(&maker->random), CALLSITES);
        maker->live[slot] = 0;
        return;
    }
    event->kind = VARVE_KIND_HEAP_ALLOC;
    event->cause = random % 16 == 0 ? VARVE_CAUSE_CALLOC : VARVE_CAUSE_MALLOC;
    event->size = random_size(random_next(&maker->random));
    event->addr = slot < SLOTS_HOT ? 0x55d0c0de0000 + slot * UINT64_C(65536) : maker->next_addr;
    maker->next_addr += slot < SLOTS_HOT ? 0 : 16 + (event->size + 15) / 16 * 16;
    event->callsite = 1 + random_skewed(random_next(&maker->random), CALLSITES);
    if (random % 1024 != 7 || slot < SLOTS_HOT) { /* else: never freed */
        maker->live[slot] = event->addr;
    }
}

static void events_make(struct maker *maker, uint64_t count)
{
    maker->random = 88172645463325252U;
    maker->next_addr = 0x7f10c0de0000;
    derive_process_start(maker->derive, 1, 0);
    struct varve_message message;
    struct event event;
    while (maker->seq < count) {
        event_next(maker, &event);
        CHECK(derive_event(maker->derive, &event, &message) == VARVE_OK, message.text);
        CHECK(store_append(maker->store, &event, &message) == VARVE_OK, message.text);
        if (store_pending(maker->store) == COMMIT_EVENTS) {
            CHECK(store_commit(maker->store, NULL, 0, &message) == VARVE_OK, message.text);
        }
    }
    derive_process_end(maker->derive, 1);
    CHECK(store_commit(maker->store, NULL, 0, &message) == VARVE_OK, message.text);
}

static void callsite_file_make(struct store *store)
{
    static uint32_t symbols[SYMBOLS];
    char function[64];
    char file[64];
    uint64_t random = 1234567;
    struct stack_nodes nodes = {0};
    for (uint32_t i = 0; i < SYMBOLS; i++) {
        snprintf(function, sizeof(function), "component_%u::operation_%u(int, char const*)", i / 100, i);
        snprintf(file, sizeof(file), "source/component_%u/part_%u.cc", i / 100, i / 10);
        struct store_symbol symbol = {.function = function, .file = file, .module = "/usr/lib/libcomponent.so"};
        symbol.line = 1 + i % 700;
        symbols[i] = store_symbol(store, &symbol);
        CHECK(symbols[i] != 0, "cannot store a symbol");
    }
    for (uint32_t callsite = 1; callsite <= CALLSITES; callsite++) {
        uint32_t first = (uint32_t)(random_next(&random) % SYMBOLS);
        uint32_t node = 0;
        for (uint32_t depth = DEPTH; depth-- > 0;) {
            /* outer frames are shared by many call sites */
            uint32_t symbol = depth == 0 ? first : (uint32_t)(random_next(&random) % (SYMBOLS >> depth));
            CHECK(stack_nodes_find(&nodes, store, node, symbols[symbol], 4096 + symbol * 64, &node) == VARVE_OK,
                  "cannot store a frame");
        }
        CHECK(store_callsite(store, callsite, node, DEPTH, symbols[first], symbols[first]) == VARVE_OK,
              "cannot store a call site");
    }
    stack_nodes_free(&nodes);
}

static void rows_make(const struct maker *maker)
{
    struct store *store = maker->store;
    int64_t end_ns = maker->ts_ns;
    struct store_process process = {.id = 1, .pid = 31415, .parent_pid = 1, .rank = -1, .exit_status = 0};
    process.executable = "/usr/bin/example";
    process.command_line = "example --threads 4";
    process.end_cause = "exit";
    process.end_ns = end_ns;
    CHECK(store_process(store, &process) == VARVE_OK, "cannot store the process");
    for (uint32_t i = 0; i < THREADS; i++) {
        struct store_thread thread = {.id = 1 + i, .process_id = 1, .ring = 1 + i, .pid = 31415, .name = "example"};
        thread.tid = 31415 + (int32_t)i;
        thread.end_ns = end_ns;
        thread.emitted = thread.stored = maker->of_thread[i];
        CHECK(store_thread(store, &thread) == VARVE_OK, "cannot store a thread");
    }
    CHECK(store_meta_text(store, "command", "example --threads 4") == VARVE_OK &&
              store_meta_integer(store, "duration_ns", end_ns) == VARVE_OK &&
              store_stat(store, "events_emitted", -1, "info", "ring", (int64_t)maker->seq) == VARVE_OK &&
              store_stat(store, "events_stored", -1, "info", "ring", (int64_t)maker->seq) == VARVE_OK &&
              store_stat(store, "events_lost", -1, "data_loss", "ring", 0) == VARVE_OK,
          "cannot store the meta values");
}

/* Bytes of the database as its last commit left it, whether in the file or still in the write-ahead log. */
static double database_bytes(const char *path)
{
    sqlite3 *db;
    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK, "cannot open the database");
    sqlite3_stmt *query;
    CHECK(sqlite3_prepare_v2(db, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size", -1, &query,
                             NULL) == SQLITE_OK &&
              sqlite3_step(query) == SQLITE_ROW,
          "cannot ask for the size of the database");
    double bytes = sqlite3_column_double(query, 0);
    sqlite3_finalize(query);
    sqlite3_close(db);
    return bytes;
}

static void figure(const char *metric, double value, const char *unit, double target, const char *others)
{
    printf("{\"bench\": \"report\", \"metric\": \"%s\", \"value\": %.3f, \"unit\": \"%s\"%s", metric, value, unit,
           others);
    if (target > 0) {
        printf(", \"target\": %g, \"met\": %s", target, value <= target ? "true" : "false");
    }
    puts("}");
    fflush(stdout);
}

static void database_make(const char *directory, const char *path, uint64_t count)
{
    struct maker *maker = calloc(1, sizeof(*maker));
    double begin = bench_now();
    CHECK(maker != NULL, "no memory");
    char scratch[4096];
    snprintf(scratch, sizeof(scratch), "%s/scratch", directory);
    char others[64];
    snprintf(others, sizeof(others), ", \"events\": %llu", (unsigned long long)count);
    struct varve_message message;
    CHECK(store_open(path, STORE_CREATE, &maker->store, &message) == VARVE_OK, message.text);
    CHECK(derive_open(scratch, &maker->derive, &message) == VARVE_OK, message.text);
    events_make(maker, count);
    figure("event on disk, before derived tables and indexes", database_bytes(path) / (double)count, "bytes", 64,
           others);
    double stored = bench_now();
    rows_make(maker);
    callsite_file_make(maker->store);
    CHECK(derive_finish(maker->derive, maker->store, NULL, NULL, &message) == VARVE_OK, message.text);
    CHECK(store_finish(maker->store, NULL, NULL, &message) == VARVE_OK, message.text);
    derive_close(maker->derive);
    store_close(maker->store);
    unlink(scratch);
    free(maker);
    figure("event on disk, complete", database_bytes(path) / (double)count, "bytes", 140, others);
    fprintf(stderr, "bench_report: %.1f s to store the events, %.1f s to complete the database\n", stored - begin,
            bench_now() - stored);
}

/* Wall time of one question to the database, its answer thrown away; `sql`: NULL, or what the command gets after the
 * path. */
static double question_time(const char *question, const char *path, const char *sql)
{
    const char *varve = getenv("VARVE");
    double begin = bench_now();
    pid_t pid = fork();
    CHECK(pid >= 0, "fork failed");
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        if (null >= 0 && dup2(null, STDOUT_FILENO) >= 0) {
            execl(varve != NULL ? varve : VARVE_BUILD_DIR "/varve", "varve", question, path, sql, (char *)NULL);
        }
        _exit(127);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid failed");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "varve failed");
    return bench_now() - begin;
}

/* The median. */
static double question_seconds(const char *question, const char *path, const char *sql)
{
    double seconds[REPETITIONS];
    for (int k = 0; k < REPETITIONS; k++) {
        seconds[k] = question_time(question, path, sql);
    }
    return bench_median(seconds, REPETITIONS);
}

/* Each of the ten questions by itself: a statement ends with an empty line. Their budget is 1 s for 4 M events. */
static void examples_ask(const char *path, uint64_t count)
{
    static char text[65536];
    FILE *file = fopen(VARVE_SOURCE_DIR "/analysis/query/questions.sql", "r");
    size_t bytes = file != NULL ? fread(text, 1, sizeof(text) - 1, file) : 0;
    int asked = 0;
    CHECK(bytes > 0 && bytes < sizeof(text) - 1, "cannot read the questions");
    fclose(file);
    for (char *at = text; at != NULL && *at != '\0';) {
        char *end = strstr(at, "\n\n");
        int length = 0;
        if (end != NULL) {
            *end = '\0';
        }
        char metric[256];
        if (strstr(at, "SELECT") != NULL && strncmp(at, "-- ", 3) == 0 && at[3] >= '0' && at[3] <= '9') {
            length = (int)strcspn(at + 3, "\n");
            snprintf(metric, sizeof(metric), "question %.*s", length, at + 3);
            figure(metric, question_seconds("query", path, at), "s", (double)count / 4e6, "");
            asked++;
        }
        at = end != NULL ? end + 2 : NULL;
    }
    CHECK(asked == 10, "there are not ten questions");
}

static void questions_ask(const char *path)
{
    static const struct {
        const char *question;
        double target;
    } questions[] = {{"report", 3}, {"info", 0}, {"leaks", 0}, {"peak", 0}, {"timeline", 0}};
    for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
        char metric[64];
        snprintf(metric, sizeof(metric), "varve %s", questions[i].question);
        figure(metric, question_seconds(questions[i].question, path, NULL), "s", questions[i].target, "");
    }
}

int main(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : getenv("VARVE_BENCH_REPORT_EVENTS");
    uint64_t count = text != NULL ? strtoull(text, NULL, 10) : EVENTS_DEFAULT;
    const char *parent = getenv("TMPDIR");
    CHECK(count > 0, "usage: bench_report [EVENTS]");
    char directory[2048];
    snprintf(directory, sizeof(directory), "%s/varve-bench-report.XXXXXX", parent != NULL ? parent : "/tmp");
    CHECK(mkdtemp(directory) != NULL, "no temporary directory");
    char path[4096];
    snprintf(path, sizeof(path), "%s/trace.db", directory);
    database_make(directory, path, count);
    questions_ask(path);
    examples_ask(path, count);
    unlink(path);
    rmdir(directory);
    return 0;
}
