/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database of 10 M events of a caching allocator, made by varve_writer: how fast it takes them (>= 1 M/s),
 * how much of the file the keyframes are, and how long `varve segments --at` takes for events anywhere in it
 * (< 1 s).
 *
 * The events are those of an allocator on two devices: segments of 20 MiB, first free block of a random one,
 * splits, merges, a few blocks that stay pending for a while; some thousand live blocks, then some hundred
 * thousand of them. Making them up is timed without a writer and taken off.
 *
 *   bench_segments [EVENTS]        default: $VARVE_BENCH_SEGMENTS_EVENTS, or 10000000
 */
#include "trace/trace.h"
#include "support/random.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EVENTS_DEFAULT 10000000U
#define SEEKS 15
#define DEVICES 2U
#define BLOCKS_MAX 600000U
#define SEGMENT_BYTES (UINT64_C(20) << 20)

#define CHECK(condition, text)                               \
    do {                                                     \
        if (!(condition)) {                                  \
            fprintf(stderr, "bench_segments: %s\n", (text)); \
            exit(1);                                         \
        }                                                    \
    } while (0)

struct block {
    uint64_t addr, size, requested;
    uint32_t previous, next; /* neighbours by address; 0: none */
    uint32_t segment;        /* from 1 */
    uint32_t place;          /* in the list of its state */
    bool is_free;
};

struct list {
    uint32_t *items;
    uint32_t count;
};

struct maker {
    struct varve_writer *writer; /* NULL: only made up */
    struct block *blocks;        /* from 1 */
    uint32_t block_count, spare;
    struct list unused, used;
    uint32_t segments, live_limit;
    unsigned device;
    uint64_t random, events, limit, dev_seq[DEVICES];
};

static double clock_seconds(clockid_t clock)
{
    struct timespec time;

    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double now(void)
{
    return clock_seconds(CLOCK_MONOTONIC);
}

/* The one thread's own time, which other load of the machine disturbs less. */
static double now_cpu(void)
{
    return clock_seconds(CLOCK_PROCESS_CPUTIME_ID);
}

static void emit(struct maker *maker, enum varve_kind kind, enum varve_cause cause, const struct block *block,
                 uint64_t size, uint64_t requested, uint64_t arg)
{
    unsigned device = block->segment % DEVICES;
    const struct varve_record record = {
        .addr = block->addr,
        .size = size,
        .requested = requested,
        .arg = arg,
        .dev_seq_kind_flags = varve_record_tag(++maker->dev_seq[device], kind, 0),
        .device = (uint8_t)device,
        .cause = (uint8_t)cause,
    };

    maker->events++;
    if (maker->writer != NULL) {
        CHECK(varve_writer_event(maker->writer, &record, (int64_t)maker->events * 250) == VARVE_OK,
              "an event was refused");
    }
}

static void list_add(struct maker *maker, struct list *list, uint32_t number)
{
    maker->blocks[number].place = list->count;
    list->items[list->count++] = number;
}

static void list_remove(struct maker *maker, struct list *list, uint32_t number)
{
    uint32_t last = list->items[--list->count];

    list->items[maker->blocks[number].place] = last;
    maker->blocks[last].place = maker->blocks[number].place;
}

static uint32_t block_new(struct maker *maker)
{
    uint32_t number = maker->spare;

    if (number != 0) {
        maker->spare = maker->blocks[number].next;
    } else {
        number = ++maker->block_count;
        CHECK(number < BLOCKS_MAX, "too many blocks");
    }
    return number;
}

static void segment_new(struct maker *maker)
{
    uint32_t number = block_new(maker);
    struct block *block = &maker->blocks[number];

    maker->segments++;
    *block = (struct block){.addr = UINT64_C(0x7f0000000000) + maker->segments * 2 * SEGMENT_BYTES,
                            .size = SEGMENT_BYTES,
                            .segment = maker->segments,
                            .is_free = true};
    emit(maker, VARVE_KIND_SEGMENT_ALLOC, VARVE_CAUSE_NONE, block, block->size, block->size, block->segment);
    list_add(maker, &maker->unused, number);
}

static void block_alloc(struct maker *maker)
{
    uint32_t number = maker->unused.items[random_below(&maker->random, maker->unused.count)];
    struct block *block = &maker->blocks[number];
    uint64_t size = 512 * (1 + random_below(&maker->random,
                                            1 + random_below(&maker->random, maker->live_limit > 50000 ? 128 : 4096)));

    if (size > block->size) {
        size = block->size;
    }
    list_remove(maker, &maker->unused, number);
    if (size < block->size) {
        uint32_t rest_number = block_new(maker);
        struct block *rest = &maker->blocks[rest_number];

        emit(maker, VARVE_KIND_SPLIT, VARVE_CAUSE_NONE, block, size, block->size - size, block->segment);
        *rest = (struct block){.addr = block->addr + size,
                               .size = block->size - size,
                               .previous = number,
                               .next = block->next,
                               .segment = block->segment,
                               .is_free = true};
        if (block->next != 0) {
            maker->blocks[block->next].previous = rest_number;
        }
        block->next = rest_number;
        block->size = size;
        list_add(maker, &maker->unused, rest_number);
    }
    block->is_free = false;
    block->requested = size - random_below(&maker->random, 512);
    list_add(maker, &maker->used, number);
    emit(maker, VARVE_KIND_ALLOC, VARVE_CAUSE_CACHE, block, size, block->requested, block->segment);
}

/* `number` absorbs the free block behind it. */
static void block_absorb(struct maker *maker, uint32_t number, enum varve_cause side)
{
    struct block *block = &maker->blocks[number];
    uint32_t gone = block->next;
    const struct block absorbed = maker->blocks[gone];

    list_remove(maker, &maker->unused, gone);
    block->size += absorbed.size;
    block->next = absorbed.next;
    if (block->next != 0) {
        maker->blocks[block->next].previous = number;
    }
    maker->blocks[gone].next = maker->spare;
    maker->spare = gone;
    emit(maker, VARVE_KIND_MERGE, side, block, block->size, absorbed.size,
         side == VARVE_CAUSE_NEXT ? absorbed.addr : block->addr);
}

static void block_free(struct maker *maker)
{
    uint32_t number = maker->used.items[random_below(&maker->random, maker->used.count)];
    struct block *block = &maker->blocks[number];

    emit(maker, VARVE_KIND_FREE_REQUESTED, VARVE_CAUSE_NONE, block, block->size, block->requested, block->segment);
    emit(maker, VARVE_KIND_FREE_COMPLETED, VARVE_CAUSE_NONE, block, block->size, block->requested, block->segment);
    list_remove(maker, &maker->used, number);
    block->is_free = true;
    list_add(maker, &maker->unused, number);
    if (block->previous != 0 && maker->blocks[block->previous].is_free) {
        number = block->previous;
        block_absorb(maker, number, VARVE_CAUSE_PREVIOUS);
    }
    if (maker->blocks[number].next != 0 && maker->blocks[maker->blocks[number].next].is_free) {
        block_absorb(maker, number, VARVE_CAUSE_NEXT);
    }
}

static void events_make(struct varve_writer *writer, uint64_t events, uint32_t live_limit)
{
    struct maker maker = {.writer = writer, .random = 88172645463325252U, .live_limit = live_limit};

    maker.blocks = calloc(BLOCKS_MAX, sizeof(*maker.blocks));
    maker.unused.items = calloc(BLOCKS_MAX, sizeof(uint32_t));
    maker.used.items = calloc(BLOCKS_MAX, sizeof(uint32_t));
    CHECK(maker.blocks != NULL && maker.unused.items != NULL && maker.used.items != NULL, "no memory");
    while (maker.events < events) {
        bool is_full = maker.used.count >= live_limit;

        if (maker.unused.count == 0 || (!is_full && maker.unused.count < maker.used.count / 8)) {
            segment_new(&maker);
        } else if (!is_full && (maker.used.count == 0 || random_below(&maker.random, 100) < 55)) {
            block_alloc(&maker);
        } else {
            block_free(&maker);
        }
    }
    free(maker.blocks);
    free(maker.unused.items);
    free(maker.used.items);
}

static void figure(const char *metric, uint32_t live, double value, const char *unit, double target, bool at_least)
{
    printf("{\"bench\": \"segments\", \"metric\": \"%s\", \"value\": %.4g, \"unit\": \"%s\", "
           "\"live_blocks\": %u",
           metric, value, unit, live);
    if (target > 0) {
        printf(", \"target\": %g, \"met\": %s", target,
               (at_least ? value >= target : value <= target) ? "true" : "false");
    }
    puts("}");
    fflush(stdout);
}

static double query(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *statement;
    double value;

    CHECK(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) == SQLITE_OK &&
              sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW,
          "the database does not answer");
    value = sqlite3_column_double(statement, 0);
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return value;
}

static double seek_time(const char *path, uint64_t seq)
{
    const char *varve = getenv("VARVE");
    double begin = now();
    char text[32];
    int status;
    pid_t pid = fork();

    CHECK(pid >= 0, "fork failed");
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        snprintf(text, sizeof(text), "%llu", (unsigned long long)seq);
        if (null >= 0 && dup2(null, STDOUT_FILENO) >= 0) {
            execl(varve != NULL ? varve : VARVE_BUILD_DIR "/varve", "varve", "segments", "--at", text, path,
                  (char *)NULL);
        }
        _exit(127);
    }
    CHECK(waitpid(pid, &status, 0) == pid, "waitpid failed");
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "varve failed");
    return now() - begin;
}

static void seeks_measure(const char *path, uint64_t events, uint32_t live)
{
    double sum = 0;
    double longest = 0;

    for (uint64_t i = 0; i < SEEKS; i++) {
        /* not in order, and the very last one too */
        double seconds = seek_time(path, events - events / SEEKS * (i * 7 % SEEKS));

        sum += seconds;
        longest = seconds > longest ? seconds : longest;
    }
    figure("varve segments --at, mean", live, sum / SEEKS, "s", 1, false);
    figure("varve segments --at, longest", live, longest, "s", 1, false);
}

static void database_measure(const char *path, uint64_t events, uint32_t live)
{
    struct varve_writer *writer;
    struct varve_message message;
    double wall = now();
    double cpu = now_cpu();
    events_make(NULL, events, live);
    double made_up = now() - wall;
    double made_up_cpu = now_cpu() - cpu;

    wall = now();
    cpu = now_cpu();
    CHECK(varve_writer_open(path, true, &writer, &message) == VARVE_OK, message.text);
    events_make(writer, events, live);
    double written = now() - wall - made_up;
    double written_cpu = now_cpu() - cpu - made_up_cpu;
    double count = (double)varve_writer_events(writer);
    CHECK(varve_writer_finish(writer, NULL, NULL, &message) == VARVE_OK, message.text);
    double finished = now() - wall - made_up;
    figure("events written", live, count / written * 1e-6, "M/s", 1, true);
    figure("events written, by CPU time", live, count / written_cpu * 1e-6, "M/s", 1, true);
    figure("events written and finished", live, count / finished * 1e-6, "M/s", 0, true);
    double keyframes = query(path, "SELECT sum(length(data)) FROM keyframe");
    double bytes = query(path, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size");
    figure("keyframes", live, query(path, "SELECT count(*) FROM keyframe"), "rows", 0, true);
    figure("keyframes, share of the file", live, keyframes / bytes, "", 0.1, false);
    figure("file, per event", live, bytes / count, "bytes", 0, true);
    seeks_measure(path, (uint64_t)count, live);
}

int main(int argc, char **argv)
{
    const char *text = argc > 1 ? argv[1] : getenv("VARVE_BENCH_SEGMENTS_EVENTS");
    uint64_t events = text != NULL ? strtoull(text, NULL, 10) : EVENTS_DEFAULT;
    const char *parent = getenv("TMPDIR");
    char directory[2048];
    char path[4096];

    CHECK(events >= 1000, "usage: bench_segments [EVENTS]");
    snprintf(directory, sizeof(directory), "%s/varve-bench-segments.XXXXXX", parent != NULL ? parent : "/tmp");
    CHECK(mkdtemp(directory) != NULL, "no temporary directory");
    snprintf(path, sizeof(path), "%s/trace.db", directory);
    database_measure(path, events, 5000);
    database_measure(path, events, 200000);
    unlink(path);
    rmdir(directory);
    return 0;
}
