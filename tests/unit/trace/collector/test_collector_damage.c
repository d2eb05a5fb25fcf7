/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared memory lies open to every stray write of the recorded program, and files of a crashed machine hold
 * anything. Whatever a ring, a spill, a control page or a call-site file says: the collector neither crashes
 * nor hangs, and the ring beside the damaged one is stored whole. The damaged one gives what it would have
 * given without damage, or the collector says that it could not be read to its end, or its loss is reported in
 * data_loss. Made for the address sanitizer.
 * Costs: 5 s
 */
#include "support/collector.h"
#include "trace/collector/collector.h"
#include "trace/collector/session/recording_directory.h"
#include "base/error.h"
#include "trace/format/ring_format.h"
#include "trace/format/session_format.h"
#include "trace/record.h"

#define HEALTHY 50U

struct victim {
    struct lab *lab;
    struct process_control *control;
    struct ring_header *ring; /* 64 records, 20 of them published */
    uint64_t random;
};

/* A field of the ring's header or of the process' control page that gets another value. */
struct damaged_field {
    bool is_of_page;
    uint16_t offset, bytes;
    uint64_t value;
};

#define RING(field, new_value)                                                                                      \
    {                                                                                                               \
        false, offsetof(struct ring_header, field), sizeof(((struct ring_header *)0)->field), (uint64_t)(new_value) \
    }
#define PAGE(field, new_value)                                                                       \
    {                                                                                                \
        true, offsetof(struct process_control, field), sizeof(((struct process_control *)0)->field), \
            (uint64_t)(new_value)                                                                    \
    }

#define NOISE 256U
#define RECORDS_AT (RING_HEADER_BYTES + RING_STAGING_RECORDS * sizeof(struct varve_record))
#define RING_FILE_BYTES (RECORDS_AT + 64 * sizeof(struct varve_record))

struct damage {
    const char *name;
    struct damaged_field fields[7];
    struct {
        size_t offset, bytes;
        unsigned with; /* a byte, or NOISE */
    } fill;            /* in the ring's file */
    off_t cut;         /* the ring's file, by so many bytes at its end; 0: it is whole */
    struct {
        uint32_t block_bytes; /* what the head of its block says; 0: it has none */
        unsigned with;
        size_t bytes;                     /* behind that */
    } spill;                              /* a file of two blocks; all zero: none */
    void (*do_it)(struct victim *victim); /* what else there is */
};

static void fill(struct victim *victim, void *bytes, size_t count, unsigned with)
{
    for (size_t i = 0; i < count; i++) {
        ((uint8_t *)bytes)[i] = (uint8_t)(with == NOISE ? random_next(&victim->random) : with);
    }
}

/* A file of the recording directory, or of its rings. */
static const char *file_of(const struct victim *victim, bool in_rings, const char *name)
{
    static char path[DIRECTORY_PATH_BYTES + 16];
    const struct session_directory *directory = &victim->lab->collector->directory;
    snprintf(path, sizeof(path), "%s/%s", in_rings ? directory->rings : directory->path, name);
    return path;
}

static void write_bytes(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static void say_spilled(struct victim *victim, uint64_t blocks)
{
    victim->ring->spill_head = victim->ring->spill_flushed = blocks * RING_STAGING_RECORDS;
    victim->ring->emitted += blocks * RING_STAGING_RECORDS;
}

static void do_damage(struct victim *victim, const struct damage *damage)
{
    for (size_t i = 0; i < 7 && damage->fields[i].bytes != 0; i++) {
        const struct damaged_field *field = &damage->fields[i];
        uint8_t *page = field->is_of_page ? (uint8_t *)victim->control : (uint8_t *)victim->ring;
        memcpy(page + field->offset, &field->value, field->bytes); /* little endian */
    }
    fill(victim, (uint8_t *)victim->ring + damage->fill.offset, damage->fill.bytes, damage->fill.with);
    if (damage->cut != 0) {
        assert_int_equal(truncate(file_of(victim, true, "p1.r2"), (off_t)ring_file_bytes(64) - damage->cut), 0);
    }
    if (damage->spill.block_bytes + damage->spill.bytes > 0) {
        const struct record_block block = {.records = RING_STAGING_RECORDS, .bytes = damage->spill.block_bytes};
        uint8_t bytes[20000];
        const char *path = file_of(victim, false, "p1.r2.spill1");
        write_bytes(path, &block, block.bytes > 0 ? sizeof(block) : 0);
        fill(victim, bytes, damage->spill.bytes, damage->spill.with);
        write_bytes(path, bytes, damage->spill.bytes);
        victim->ring->piece = 1;
        say_spilled(victim, 2);
    }
    if (damage->do_it != NULL) {
        damage->do_it(victim);
    }
}

static void no_spill_file(struct victim *victim)
{
    say_spilled(victim, 1);
}

static void spill_is_a_folder(struct victim *victim)
{
    assert_int_equal(mkdir(file_of(victim, false, "p1.r2.spill1"), 0700), 0);
    say_spilled(victim, 1);
}

static void texts_without_end(struct victim *victim)
{
    memset(victim->control->executable, 'e', sizeof(victim->control->executable));
    memset(victim->control->exec_path, 'p', sizeof(victim->control->exec_path));
    memset(victim->control->command_line, 'c', sizeof(victim->control->command_line));
}

static void sites_of_noise(struct victim *victim)
{
    for (unsigned i = 0; i < 20; i++) {
        ring_records(victim->ring)[i].callsite = i * i * i * i * i;
    }
    uint8_t bytes[5000];
    fill(victim, bytes, sizeof(bytes), NOISE);
    write_bytes(file_of(victim, false, "p1.sites"), bytes, sizeof(bytes));
}

static const struct damage damages[] = {
    {.name = "wrong magic", .fields = {RING(magic, RING_MAGIC ^ 1)}},
    {.name = "other version", .fields = {RING(version, VARVE_TRANSPORT_VERSION + 1)}},
    {.name = "other process", .fields = {RING(process_id, 7)}},
    {.name = "other index", .fields = {RING(ring_index, 9)}},
    {.name = "odd capacity", .fields = {RING(capacity, 63)}},
    {.name = "no capacity", .fields = {RING(capacity, 0)}},
    {.name = "huge capacity", .fields = {RING(capacity, 1U << 31)}},
    {.name = "capacity beyond the file", .fields = {RING(capacity, 128)}},
    {.name = "empty file", .cut = (off_t)RING_FILE_BYTES},
    {.name = "cut header", .cut = (off_t)RING_FILE_BYTES - 4096},
    {.name = "cut records", .cut = 4096},
    {.name = "head below tail", .fields = {RING(tail, 30)}},
    {.name = "head far ahead", .fields = {RING(head, UINT64_MAX)}},
    {.name = "head and capacity far ahead", .fields = {RING(capacity, 1U << 31), RING(head, 1000000)}},
    {.name = "header of noise", .fill = {0, RING_HEADER_BYTES, NOISE}},
    {.name = "header of zeros", .fill = {0, RING_HEADER_BYTES, 0}},
    {.name = "header of ones", .fill = {0, RING_HEADER_BYTES, 0xff}},
    {.name = "head back at zero", .fields = {RING(head, 0)}},
    {.name = "emitted below head", .fields = {RING(emitted, 3)}},
    {.name = "lost without end", .fields = {RING(lost, UINT64_MAX), RING(lost_bytes, UINT64_MAX)}},
    {.name = "spill out of nothing", .fields = {RING(spill_head, 10), RING(spill_flushed, 5000)}},
    {.name = "spill without end", .fields = {RING(spill_head, UINT64_MAX - 5), RING(spill_flushed, UINT64_MAX - 100)}},
    {.name = "spill never flushed", .fields = {RING(spill_head, 1000000), RING(spill_flushed, 0)}},
    {.name = "nested without end", .fields = {RING(nested_count, UINT32_MAX)}},
    {.name = "nested filed beyond", .fields = {RING(nested_count, 3), RING(nested_filed, RING_NESTED_SLOTS + 100)}},
    {.name = "strange state", .fields = {RING(state, 77)}},
    {.name = "name without end",
     .fill = {offsetof(struct ring_header, thread_name), sizeof(((struct ring_header *)0)->thread_name), 'x'}},
    {.name = "records of noise", .fill = {RECORDS_AT, 20 * sizeof(struct varve_record), NOISE}},
    {.name = "records of ones", .fill = {RECORDS_AT, 20 * sizeof(struct varve_record), 0xff}},
    {.name = "no spill file", .do_it = no_spill_file},
    {.name = "spill of noise", .spill = {0, NOISE, 10000}},
    {.name = "spill of zeros", .spill = {0, 0, 10000}},
    {.name = "spill cut behind its head", .spill = {100000, 0, 0}},
    {.name = "spill with wrong contents", .spill = {20000, 0x99, 20000} /* lengths of nine */},
    {.name = "spill with a huge block", .spill = {UINT32_MAX, 0, 0}},
    {.name = "spill is a folder", .do_it = spill_is_a_folder},
    {.name = "texts without end", .do_it = texts_without_end},
    {.name = "process of ones",
     .fields = {PAGE(parent_id, UINT32_MAX), PAGE(parent_pid, -1), PAGE(rank, INT32_MIN), PAGE(start_ticks, UINT64_MAX),
                PAGE(state, UINT32_MAX), PAGE(late_created, 1) /* without a ring 0 */, PAGE(unattached, UINT64_MAX)}},
    {.name = "own parent", .fields = {PAGE(parent_id, 1)}},
    {.name = "many ring numbers", .fields = {PAGE(ring_count, 5000)}},
    {.name = "sites of noise", .do_it = sites_of_noise},
};

/* ---- one damage, before or after the collector has seen the ring ---- */

static void expect_healthy(const struct lab *lab, const char *name, bool is_late)
{
    int64_t count = lab_integer(lab, "SELECT count(*) FROM event e JOIN thread t ON t.id = e.thread_id WHERE "
                                     "t.ring = 1 AND e.kind = 15 AND e.arg BETWEEN 1 AND 50");
    if (count != HEALTHY) {
        fail_msg("%s (%s): %lld of %u events of the ring beside it", name, is_late ? "later" : "from the beginning",
                 (long long)count, HEALTHY);
    }
}

/* Of the damaged ring: as many events as there were, and each as it was. */
static bool is_undamaged(const struct lab *lab, int64_t count)
{
    char query[400];
    snprintf(query, sizeof(query),
             "SELECT count(*) = %lld AND count(DISTINCT CASE WHEN e.kind = 32 AND e.size = 16 AND e.addr = "
             "e.arg AND "
             "e.addr BETWEEN 1 AND %lld THEN e.addr END) = %lld FROM event e JOIN thread t ON "
             "t.id = e.thread_id WHERE t.ring = 2",
             (long long)count, (long long)count, (long long)count);
    return lab_integer(lab, query) == 1;
}

/* Returns whether the damage was silent. */
static bool run_damage(const struct damage *damage, bool is_late)
{
    struct lab *lab = lab_begin();
    struct victim victim = {.lab = lab, .random = 1234567};
    pid_t pid = lab_living(lab);
    victim.control = hand_process(lab, pid);
    struct ring_header *healthy = hand_ring(lab, 1, 64);
    victim.ring = hand_ring(lab, 1, 64);
    for (uint64_t at = 1; at <= 20; at++) {
        hand_emit(victim.ring, VARVE_KIND_HEAP_ALLOC, lab->begin + at, at, at);
        hand_emit(healthy, VARVE_KIND_MARK_BEGIN, lab->begin + at, 0, at);
    }
    if (is_late) {
        lab_rounds(lab, 1000000);
        LAB_OK(lab, collector_commit(lab->collector, &lab->message));
        for (uint64_t at = 21; at <= 40; at++) {
            hand_emit(victim.ring, VARVE_KIND_HEAP_ALLOC, lab->begin + at, at, at);
        }
    }
    do_damage(&victim, damage);
    for (uint64_t at = 21; at <= HEALTHY; at++) {
        hand_emit(healthy, VARVE_KIND_MARK_BEGIN, lab->begin + at, 0, at);
    }
    lab_rounds(lab, 1000000);
    collect_process_reaped(lab->collector, pid, lab_kill(lab, pid), 0);
    struct varve_message message;
    int error = collector_drain(lab->collector, NULL, NULL, &message);
    if (error != VARVE_OK && error != VARVE_ERROR_IO) { /* IO: says that a ring could not be read to its end */
        fail_msg("%s: %s", damage->name, message.text);
    }
    LAB_OK(lab, collector_finish(lab->collector, NULL, NULL, &lab->message));
    expect_healthy(lab, damage->name, is_late);
    bool is_silent = error == VARVE_OK && !is_undamaged(lab, is_late ? 40 : 20) &&
                     lab_integer(lab, "SELECT count(*) FROM data_loss") == 0;
    if (is_silent) {
        print_error("%s (%s): nothing reports of it\n", damage->name, is_late ? "later" : "from the beginning");
    }
    lab_end(lab);
    return is_silent;
}

static void run_damages(bool is_late)
{
    unsigned silent = 0;
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        silent += (!is_late || damages[i].cut == 0) && run_damage(&damages[i], is_late);
    }
    assert_int_equal(silent, 0);
}

TEST(test_damaged_from_the_beginning)
{
    run_damages(false);
}

/* A file that is cut while it is mapped kills its readers: that takes somebody who means it. */
TEST(test_damaged_while_read)
{
    run_damages(true);
}
