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
#include "trace/collector/process.h"
#include "trace/collector/session/directory.h"
#include "trace/error.h"
#include "trace/format/ring.h"
#include "trace/format/session.h"
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

struct damage {
    const char *name;
    struct damaged_field fields[7];
    void (*do_it)(struct victim *victim); /* NULL: the fields are all */
};

/* ---- ring headers ---- */

static void wrong_magic(struct victim *victim)
{
    victim->ring->magic ^= 1;
}

static void other_version(struct victim *victim)
{
    victim->ring->version++;
}

static void cut_to(struct victim *victim, off_t bytes)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/p1.r2", victim->lab->collector->directory.rings);
    assert_int_equal(truncate(path, bytes), 0);
}

static void empty_file(struct victim *victim)
{
    cut_to(victim, 0);
}

static void cut_header(struct victim *victim)
{
    cut_to(victim, 4096);
}

static void cut_records(struct victim *victim)
{
    cut_to(victim, (off_t)ring_file_bytes(64) - 4096);
}

static void header_of_noise(struct victim *victim)
{
    uint8_t *bytes = (uint8_t *)victim->ring;
    for (size_t i = 0; i < RING_HEADER_BYTES; i++) {
        bytes[i] = (uint8_t)random_next(&victim->random);
    }
}

static void header_of_zeros(struct victim *victim)
{
    memset(victim->ring, 0, RING_HEADER_BYTES);
}

static void header_of_ones(struct victim *victim)
{
    memset(victim->ring, 0xff, RING_HEADER_BYTES);
}

static void name_without_end(struct victim *victim)
{
    memset(victim->ring->thread_name, 'x', sizeof(victim->ring->thread_name));
}

/* ---- records and spill files ---- */

static void records_of_noise(struct victim *victim)
{
    uint8_t *bytes = (uint8_t *)ring_records(victim->ring);
    for (size_t i = 0; i < 20 * sizeof(struct varve_record); i++) {
        bytes[i] = (uint8_t)random_next(&victim->random);
    }
}

static void records_of_ones(struct victim *victim)
{
    memset(ring_records(victim->ring), 0xff, 20 * sizeof(struct varve_record));
}

static void write_spill(struct victim *victim, const void *bytes, size_t count)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/p1.r2.spill1", victim->lab->collector->directory.path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
    victim->ring->piece = 1;
    victim->ring->spill_head = victim->ring->spill_flushed = 2 * RING_STAGING_RECORDS;
    victim->ring->emitted += 2 * RING_STAGING_RECORDS;
}

static void no_spill_file(struct victim *victim)
{
    victim->ring->spill_head = victim->ring->spill_flushed = RING_STAGING_RECORDS;
    victim->ring->emitted += RING_STAGING_RECORDS;
}

static void spill_of_noise(struct victim *victim)
{
    uint8_t bytes[10000];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        bytes[i] = (uint8_t)random_next(&victim->random);
    }
    write_spill(victim, bytes, sizeof(bytes));
}

static void spill_of_zeros(struct victim *victim)
{
    uint8_t bytes[10000] = {0};
    write_spill(victim, bytes, sizeof(bytes));
}

/* A sound head, then nothing, or what is no packed record. */
static void spill_cut_behind_its_head(struct victim *victim)
{
    const struct record_block block = {.records = RING_STAGING_RECORDS, .bytes = 100000};
    write_spill(victim, &block, sizeof(block));
}

static void spill_with_wrong_contents(struct victim *victim)
{
    struct {
        struct record_block block;
        uint8_t bytes[20000];
    } file = {.block = {.records = RING_STAGING_RECORDS, .bytes = sizeof(file.bytes)}};
    memset(file.bytes, 0x99, sizeof(file.bytes)); /* lengths of nine */
    write_spill(victim, &file, sizeof(file));
}

static void spill_with_a_huge_block(struct victim *victim)
{
    const struct record_block block = {.records = RING_STAGING_RECORDS, .bytes = UINT32_MAX};
    write_spill(victim, &block, sizeof(block));
}

static void spill_is_a_folder(struct victim *victim)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/p1.r2.spill1", victim->lab->collector->directory.path);
    assert_int_equal(mkdir(path, 0700), 0);
    no_spill_file(victim);
}

/* ---- control pages and call sites ---- */

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
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/p1.sites", victim->lab->collector->directory.path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (unsigned i = 0; i < 5000; i++) {
        fputc((int)(random_next(&victim->random) & 0xff), file);
    }
    fclose(file);
}

static const struct damage damages[] = {
    {.name = "wrong magic", .do_it = wrong_magic},
    {.name = "other version", .do_it = other_version},
    {.name = "other process", .fields = {RING(process_id, 7)}},
    {.name = "other index", .fields = {RING(ring_index, 9)}},
    {.name = "odd capacity", .fields = {RING(capacity, 63)}},
    {.name = "no capacity", .fields = {RING(capacity, 0)}},
    {.name = "huge capacity", .fields = {RING(capacity, 1U << 31)}},
    {.name = "capacity beyond the file", .fields = {RING(capacity, 128)}},
    {.name = "empty file", .do_it = empty_file},
    {.name = "cut header", .do_it = cut_header},
    {.name = "cut records", .do_it = cut_records},
    {.name = "head below tail", .fields = {RING(tail, 30)}},
    {.name = "head far ahead", .fields = {RING(head, UINT64_MAX)}},
    {.name = "head and capacity far ahead", .fields = {RING(capacity, 1U << 31), RING(head, 1000000)}},
    {.name = "header of noise", .do_it = header_of_noise},
    {.name = "header of zeros", .do_it = header_of_zeros},
    {.name = "header of ones", .do_it = header_of_ones},
    {.name = "head back at zero", .fields = {RING(head, 0)}},
    {.name = "emitted below head", .fields = {RING(emitted, 3)}},
    {.name = "lost without end", .fields = {RING(lost, UINT64_MAX), RING(lost_bytes, UINT64_MAX)}},
    {.name = "spill out of nothing", .fields = {RING(spill_head, 10), RING(spill_flushed, 5000)}},
    {.name = "spill without end", .fields = {RING(spill_head, UINT64_MAX - 5), RING(spill_flushed, UINT64_MAX - 100)}},
    {.name = "spill never flushed", .fields = {RING(spill_head, 1000000), RING(spill_flushed, 0)}},
    {.name = "nested without end", .fields = {RING(nested_count, UINT32_MAX)}},
    {.name = "nested filed beyond", .fields = {RING(nested_count, 3), RING(nested_filed, RING_NESTED_SLOTS + 100)}},
    {.name = "strange state", .fields = {RING(state, 77)}},
    {.name = "name without end", .do_it = name_without_end},
    {.name = "records of noise", .do_it = records_of_noise},
    {.name = "records of ones", .do_it = records_of_ones},
    {.name = "no spill file", .do_it = no_spill_file},
    {.name = "spill of noise", .do_it = spill_of_noise},
    {.name = "spill of zeros", .do_it = spill_of_zeros},
    {.name = "spill cut behind its head", .do_it = spill_cut_behind_its_head},
    {.name = "spill with wrong contents", .do_it = spill_with_wrong_contents},
    {.name = "spill with a huge block", .do_it = spill_with_a_huge_block},
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
    for (size_t i = 0; i < 7 && damage->fields[i].bytes != 0; i++) {
        const struct damaged_field *field = &damage->fields[i];
        uint8_t *page = field->is_of_page ? (uint8_t *)victim.control : (uint8_t *)victim.ring;
        memcpy(page + field->offset, &field->value, field->bytes); /* little endian */
    }
    if (damage->do_it != NULL) {
        damage->do_it(&victim);
    }
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

TEST(test_damaged_from_the_beginning)
{
    unsigned silent = 0;
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        silent += run_damage(&damages[i], false);
    }
    assert_int_equal(silent, 0);
}

/* A file that is cut while it is mapped kills its readers: that takes somebody who means it. */
TEST(test_damaged_while_read)
{
    unsigned silent = 0;
    for (size_t i = 0; i < sizeof(damages) / sizeof(damages[0]); i++) {
        if (strncmp(damages[i].name, "cut", 3) != 0 && strcmp(damages[i].name, "empty file") != 0) {
            silent += run_damage(&damages[i], true);
        }
    }
    assert_int_equal(silent, 0);
}
