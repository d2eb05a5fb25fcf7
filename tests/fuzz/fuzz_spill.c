/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as the positions in the header of a ring and as its spill file. Whatever they
 * say, taking records ends, and every record that is counted was read. And any bytes as packed records: what
 * is taken for `count` records is what the packer makes of these.
 */
#include "fuzz/target.h"

#include "trace/collector/collector.h"
#include "trace/collector/session/recording_directory.h"
#include "base/error.h"
#include "trace/format/ring_format.h"
#include "trace/record.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POSITIONS 8U
#define CAPACITY RING_CAPACITY_MIN
#define PACKED_RECORDS_MAX 64U

static struct session_directory directory;
static struct ring_header *ring;
static char spill[DIRECTORY_PATH_BYTES];

static uint64_t read_sum; /* so that each byte is read */

static void clean(void)
{
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/p1.r1", directory.rings);
    unlink(path);
    unlink(spill);
    rmdir(directory.path);
}

/* A folder with one ring, for all inputs. */
static void prepare(void)
{
    snprintf(directory.path, sizeof(directory.path), "/tmp/varve-fuzz-XXXXXX");
    check(mkdtemp(directory.path) != NULL);
    directory.fd = open(directory.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    directory.rings_fd = directory.fd;
    check(directory.fd >= 0);
    snprintf(directory.rings, sizeof(directory.rings), "%s", directory.path);
    char path[DIRECTORY_PATH_BYTES + 16];
    snprintf(path, sizeof(path), "%s/p1.r1", directory.rings);
    snprintf(spill, sizeof(spill), "%.200s/p1.r1.spill1", directory.path);
    int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    check(file >= 0 && ftruncate(file, (off_t)ring_file_bytes(CAPACITY)) == 0);
    ring = mmap(NULL, ring_file_bytes(CAPACITY), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    check(ring != MAP_FAILED);
    close(file);
    atexit(clean);
}

static void header_fill(const uint64_t positions[POSITIONS])
{
    memset(ring, 0, sizeof(*ring));
    ring->version = VARVE_TRANSPORT_VERSION;
    ring->process_id = 1;
    ring->ring_index = 1;
    ring->capacity = CAPACITY;
    ring->staging_capacity = RING_STAGING_RECORDS;
    ring->state = positions[5] % 2 ? RING_STATE_RETIRED : RING_STATE_OPEN;
    ring->head = positions[0];
    ring->spill_resume = positions[6];
    ring->piece = (uint32_t)positions[7] + 1;
    ring->pieces_ended = (uint32_t)(positions[7] >> 32);
    ring->pieces_released = 0;
    ring->spill_head = positions[1];
    ring->spill_flushed = positions[2];
    ring->emitted = positions[3];
    ring->nested_count = (uint32_t)positions[4];
    ring->nested_filed = (uint32_t)(positions[4] >> 32);
    ring->magic = RING_MAGIC;
}

/* Positions that are near each other are worth more than those that a byte more makes absurd. */
static uint64_t position_next(const uint8_t **data, size_t *size)
{
    uint64_t value = 0;
    if (*size == 0) {
        return 0;
    }
    unsigned bytes = (*data)[0] % 9;
    (*data)++;
    (*size)--;
    bytes = bytes < *size ? bytes : (unsigned)*size;
    memcpy(&value, *data, bytes);
    *data += bytes;
    *size -= bytes;
    return value;
}

static void spill_write(const uint8_t *data, size_t size)
{
    int file = open(spill, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    check(file >= 0 && write(file, data, size) == (ssize_t)size);
    close(file);
}

static void read_all(void)
{
    struct traced_process process = {.id = 1, .has_ended = true};
    uint64_t most = CAPACITY + RING_NESTED_SLOTS, taken = 0;
    struct ring_reader *reader;
    check(ring_reader_open(&reader, &directory, &process, 1) == VARVE_OK);
    ring_reader_refresh(reader);
    const struct varve_record *record;
    while ((record = ring_reader_peek(reader, &directory)) != NULL) {
        read_sum += record->addr + record->ticks;
        ring_reader_pop(reader);
        taken++;
        check(reader->read <= CAPACITY && taken <= most + reader->spill_read);
    }
    ring_reader_commit(reader);
    ring_reader_release(reader);
    check(reader->stored <= reader->read + reader->spill_read + RING_NESTED_SLOTS);
    ring_reader_close(reader);
}

static void unpack(const uint8_t *data, size_t size, size_t count)
{
    uint8_t *exact = malloc(size > 0 ? size : 1); /* to the byte, for the address sanitizer */
    check(exact != NULL);
    memcpy(exact, data, size);
    struct varve_record records[PACKED_RECORDS_MAX];
    uint8_t again[PACKED_RECORDS_MAX * RECORD_PACKED_MAX + 8];
    if (record_unpack(exact, size, records, count)) {
        struct varve_record copies[PACKED_RECORDS_MAX];
        size_t bytes = record_pack(records, count, again);
        check(record_unpack(again, bytes, copies, count) && memcmp(records, copies, count * sizeof(records[0])) == 0);
    }
    free(exact);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (ring == NULL) {
        prepare();
    }
    if (size > 0 && data[0] >= 128) {
        unpack(data + 1, size - 1, data[0] % PACKED_RECORDS_MAX);
        return 0;
    }
    uint64_t positions[POSITIONS];
    for (unsigned i = 0; i < POSITIONS; i++) {
        positions[i] = position_next(&data, &size);
    }
    header_fill(positions);
    spill_write(data, size);
    read_all();
    return 0;
}
