/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See device_rules.h. Random copies and fills are compared with arrays of bytes: which error each call must give is
 * worked out address by address, and where the device has memory (device_kind.has_bytes), so is what all of it must
 * hold afterwards.
 */
#include "support/cuda/device_rules.h"

#include "support/random.h"
#include "tests/cmocka.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- in words ---- */

static const struct device_case cases[] = {
    PLAY("segments, and the limit",
         "used?0 total?16u a=alloc:4u b=alloc:4u@1 used?8u c=alloc:4u@2 d=alloc:4u@3 apart:4u:a:b:c:d?1 used?16u "
         "alloc:1!memory create:1u!memory used?16u free:b:4u alloc:5u!memory b=alloc:4u "
         "free:a:4u free:b:4u free:c:4u free:d:4u used?0"),
    PLAY("misuse of segments",
         "alloc:0!invalid alloc:max!memory free:0x1000:1u!missing a=alloc:1u free:a:1M!invalid free:a:0!invalid "
         "free:a+4096:1u-4096!missing free:0:1u!missing unreserve:a:1u!missing used?1u free:a:1u free:a:1u!missing "
         "r=reserve:1u free:r:1u!missing unreserve:r:1u used?0"),
    PLAY("virtual memory, as an expandable segment grows and shrinks: a handle per unit, one access call over all",
         "r=reserve:32u@7 mod:r:1u?0 used?0 h=create:1u map:r:1u:h i=create:1u map:r+1u:1u:i j=create:1u map:r+2u:1u:j "
         "k=create:1u map:r+3u:1u:k access:r:4u used?4u unmap:r:1u release:h:1u unmap:r+1u:1u release:i:1u used?2u "
         "unmap:r+2u:2u release:j:1u release:k:1u used?0 unreserve:r:32u"),
    PLAY("a handle that is released before it is unmapped",
         "r=reserve:4u h=create:1u map:r:1u:h map:r+2u:1u:h release:h:1u release:h:1u!missing map:r+1u:1u:h!missing "
         "used?1u unmap:r:1u used?1u unmap:r+2u:1u used?0 unreserve:r:4u"),
    PLAY("misuse of mapping",
         "reserve:0!invalid create:0!invalid r=reserve:4u h=create:1u l=create:2u a=alloc:1u map:r:1u:h+1000!missing "
         "map:r:1u:0!missing map:r:2u:h!invalid map:r:0:h!invalid map:a:1u:h!missing map:0x1000:1u:h!missing "
         "map:r+3u:2u:l!invalid map:r+1u:1u:h map:r+1u:1u:h!invalid map:r:2u:l!invalid unreserve:r:4u!invalid used?4u "
         "map:r+2u:2u:l unmap:r+1u:3u unreserve:r:3u!invalid unreserve:r+1u:3u!missing unreserve:r:4u "
         "unreserve:r:4u!missing release:h:2u!invalid release:h:1u release:h:1u!missing release:l:2u free:a:1u used?0"),
    PLAY("misuse of unmapping and of access: holes, parts, nothing",
         "r=reserve:8u h=create:2u map:r:2u:h map:r+4u:2u:h unmap:r+2u:2u!invalid unmap:r:1u!invalid "
         "unmap:r+1u:1u!invalid unmap:r:3u!invalid unmap:r:6u!invalid unmap:r+1u:3u!invalid unmap:r+4u:4u!invalid "
         "unmap:r:0!invalid unmap:r:max!invalid access:r+2u:2u!invalid access:r:1u!invalid access:r+1u:1u!invalid "
         "access:r:3u!invalid access:r:6u!invalid access:r+1u:3u!invalid access:r+4u:4u!invalid access:r:0!invalid "
         "access:r:2u:-1!invalid access:r:2u:256!invalid unmap:r:2u unmap:r:2u!invalid unmap:r+4u:2u release:h:2u "
         "unreserve:r:8u"),
    PLAY(
        "events",
        "query:1!missing e=event f=event differ:e:f?1 differ:e:0?1 differ:f:0?1 query:e?1 sync:e record:e@s sync:e "
        "query:e?1 record:e finish finish@s query:e?1 no_event:e no_event:e!missing record:e@s!missing query:e!missing "
        "sync:e!missing query:f?1 no_event:f"),
    PLAY("host memory",
         "pin:0!invalid pin:max-4095!memory unpin:0!missing a=pin:1 b=pin:1001 c=pin:3001 d=pin:7001 mod:a:256?0 "
         "mod:b:256?0 mod:c:256?0 mod:d:256?0 set:a:1:1 set:b:1001:2 set:c:3001:3 set:d:7001:4 used?0 byte:a?1 "
         "byte:b+1000?2 byte:c+3000?3 byte:d+7000?4 unpin:c+1!missing free:c:3001!missing unpin:a unpin:a!missing "
         "unpin:c unpin:c!missing unpin:b"), /* the last goes with the device */
    PLAY("misuse of copies and fills",
         "h=pin:1u set:h:1u:0 a=alloc:1u b=alloc:1u in:a:h:1u out:h:a+1u-1:1 copy:0:0:0 in:a:h:1u+1!invalid "
         "in:a+5:h:1u!invalid in:a:h:max!invalid in:a:0:1!invalid out:0:a:1!invalid in:h:a:1!missing out:a:h:1!missing "
         "copy:a:h:1!missing copy:a:a:16!invalid copy:a:a+15:16!invalid copy:a+16:a:16 no_copy:a:h:16!invalid "
         "fill:a:0:3:1!invalid fill:a:0:16:1!invalid fill:a+4:0:8:1!invalid fill:a:0:8:0x3fffffffffffffff!invalid "
         "fill:a:0:4:512K+1!invalid fill:a:0:4:512K fill:h:0:1:1!missing finish free:a:1u in:a:h:16!missing "
         "fill:a:0:1:1!missing in:b:h:16 finish"),
    PLAY("rows, and their pitches: one row needs none",
         "a=alloc:1u rows:a:64:a+1M:64:32:100 rows:a:0:a+1M:0:32:1 rows:a:0:a:0:0:7 rows:a:0:a:0:7:0 "
         "rows:a:31:a+1M:64:32:2!invalid rows:a:64:a+1M:31:32:2!invalid rows:a:0x7fffffffffffffff:a+1M:32:32:4!invalid "
         "rows:a:64:a+1M:64:64:16K rows:a:64:a+1M:64:64:16K+1!invalid h=value:0x7fffffffffffffff "
         "rows:a:h:a+1M:h:h:h!invalid finish"),
    PLAY("columns of one matrix: side by side, then with one byte of the next row's beginning in common",
         "a=alloc:1u rows:a:64:a+32:64:32:100 rows:a+32:64:a:64:32:100 rows:a:64:a+31:64:32:100!invalid "
         "rows:a:64:a+33:64:32:100!invalid finish"),
    PLAY("the second row of one, the first of the other",
         "a=alloc:1u rows:a:64:a+40:64:33:1 rows:a:64:a+40:64:24:2 rows:a:64:a+40:64:25:2!invalid "
         "rows:a+40:64:a:64:25:2!invalid rows:a:64:a+104:64:25:2 rows:a:64:a+104:64:25:3!invalid "
         "rows:a:64:a+6400:64:64:100 rows:a:64:a+6336:64:1:100!invalid rows:a:64:a+32:65:32:100!invalid finish"),
    PLAY("what is mapped but has no access, or access of a peer only, is out of reach; so are holes",
         "r=reserve:4u fill:r:0:1:1!invalid h=create:1u map:r:1u:h i=create:1u map:r+1u:1u:i j=create:1u map:r+2u:1u:j "
         "fill:r:0:1:1!invalid access:r:2u fill:r:0:1:2u fill:r+1u-1:0:1:2 fill:r+1u:0:1:1u+1!invalid "
         "fill:r+3u:0:1:1!invalid copy:r+1u+5:r+5:1u-5 finish unmap:r:1u copy:r+1u+5:r+5:10!invalid fill:r+1u:0:1:1u "
         "map:r:1u:h fill:r:0:1:1!invalid finish"),
};

/* What a pool keeps unused goes when it is trimmed, and only then has to. */
static const struct device_case pool_cases[] = {
    PLAY("a pool",
         "trim:0 a=alloc_async:4u used?4u b=alloc_async:4u@s used?8u c=alloc_async:4u used?12u d=alloc_async:4u@s "
         "used?16u apart:4u:a:b:c:d?1 alloc_async:1!memory alloc:1!memory e=event record:e wait:e@s j=join join?j "
         "differ:j:0?1 differ:j:s?1 wait:e@j no_event:e free_async:a:4u free_async:b:4u@s free_async:c:4u "
         "free_async:d:4u@j finish@j finish@s finish trim:0 used?0 a=alloc:16u free:a:16u"),
    PLAY("misuse of a pool",
         "alloc_async:0!invalid alloc_async:max!memory free_async:0x1000:1u!missing free_async:0:1u!missing "
         "wait:1!missing a=alloc_async:1u b=alloc:1u free_async:a:1M!invalid free_async:a:0!invalid "
         "free_async:a+512:1u-512!missing free_async:b:1u!missing free:a:1u!missing used?2u free_async:a:1u "
         "free_async:a:1u!missing free:b:1u finish trim:0 alloc_async:1u"), /* left to the close */
};

static void many_streams(struct device_play *play)
{
    uint64_t streams[20];
    device_words(play, "no_stream:0!missing no_stream:s!missing e=event a=stream");
    for (size_t i = 0; i < 20; i++) {
        device_words(play, "t=stream differ:t:0?1 differ:t:s?1 differ:t:a?1 record:e@t wait:e@a finish@t query:e?1");
        streams[i] = play->named['t' - 'a'];
        for (size_t k = 0; k < i; k++) {
            assert_true(streams[i] != streams[k]);
        }
    }
    for (size_t i = 0; i < 10; i++) {
        play->named['u' - 'a'] = streams[i];
        device_words(play, "no_stream:u no_stream:u!missing");
    }
    device_words(play, "finish@t no_event:e"); /* the others go with the device */
}

static const struct device_case empty_case = {.what = "the rules"};

int rules_setup(void **state)
{
    const struct device_kind *kind = *state;
    int error = device_play_setup(state);
    if (error == 0) {
        ((struct device_play *)*state)->kind = kind;
    }
    return error;
}

void rules_test_plays(void **state)
{
    struct device_play *play = *state;
    const struct device_kind *kind = play->kind;
    device_play_cases(play, kind, cases, sizeof(cases) / sizeof(cases[0]));
    device_play_open(play, kind, &empty_case);
    assert_string_equal(play->device->ops->name, kind->name);
    assert_int_equal(play->device->index, RULES_INDEX);
    many_streams(play);
    if (!kind->maps_anywhere) {
        device_words(play, "r=reserve:4u h=create:1u map:r+100:1u:h!invalid");
    }
    bool has_pool = play->device->ops->alloc_async != NULL;
    device_play_close(play);
    if (has_pool) {
        device_play_cases(play, kind, pool_cases, sizeof(pool_cases) / sizeof(pool_cases[0]));
    }
}

/* ---- whatever comes and goes: no two pieces overlap, and memory is refused exactly when it must be ---- */

struct rules_piece {
    uint64_t addr, bytes, handle; /* handle 0: a segment */
};

/* The piece is a in words, its handle h, its size b. */
static bool take(struct device_play *play, bool is_mapped, bool fits, struct rules_piece *piece)
{
    play->named['b' - 'a'] = piece->bytes;
    device_words(play, !fits       ? is_mapped ? "create:b!memory" : "alloc:b!memory"
                       : is_mapped ? "h=create:b a=reserve:b+b map:a:b:h"
                                   : "h=value:0 a=alloc:b");
    piece->addr = play->named[0];
    piece->handle = play->named['h' - 'a'];
    return fits;
}

static void give(struct device_play *play, const struct rules_piece *piece)
{
    play->named[0] = piece->addr;
    play->named['b' - 'a'] = piece->bytes;
    play->named['h' - 'a'] = piece->handle;
    device_words(play, piece->handle == 0 ? "free:a:b" : "unmap:a:b release:h:b unreserve:a:b+b");
}

void rules_test_random(void **state)
{
    struct device_play *play = *state;
    const struct device_kind *kind = play->kind;
    struct rules_piece pieces[16];
    uint64_t seed = 99, sum = 0, piece_bytes = kind->piece_bytes != 0 ? kind->piece_bytes : UNIT;
    uint64_t piece_max = kind->piece_max != 0 ? kind->piece_max : 4;
    size_t count = 0, steps = kind->steps != 0 ? kind->steps : 1500;
    device_play_open(play, kind, &empty_case);
    for (size_t step = 0; step < steps; step++) {
        uint64_t random = random_next(&seed);
        if (count < 16 && random >> 63) {
            struct rules_piece piece = {.bytes = ((random >> 40) % piece_max + 1) * piece_bytes};
            if (take(play, (random >> 50) % 2, sum + piece.bytes <= RULES_CAPACITY, &piece)) {
                for (size_t i = 0; i < count; i++) {
                    assert_true(piece.addr + piece.bytes <= pieces[i].addr ||
                                pieces[i].addr + pieces[i].bytes <= piece.addr);
                }
                pieces[count++] = piece;
                sum += piece.bytes;
            }
        } else if (count > 0) {
            size_t i = (random >> 40) % count;
            give(play, &pieces[i]);
            sum -= pieces[i].bytes;
            pieces[i] = pieces[--count];
        }
        assert_int_equal(device_used(play), sum);
    }
    device_play_close(play);
}

/* ---- threads: each fills what it gets and looks at it; running out of memory is no failure ---- */

#define THREADS 4U

struct worker {
    pthread_t thread;
    const struct device_kind *kind;
    struct varve_device *device;
    uint64_t stream, host; /* of its own */
    unsigned number, rounds, failures, refused;
};

/* Both ends of a piece, there and back again. */
static unsigned fill_and_look(const struct worker *worker, uint64_t addr, uint64_t bytes, unsigned char value)
{
    struct varve_device *device = worker->device;
    const struct varve_device_ops *ops = device->ops;
    const unsigned char *seen = (const unsigned char *)(uintptr_t)worker->host;
    const uint64_t ends[] = {addr, addr + bytes - 4096};
    unsigned failures = 0;
    for (size_t i = 0; i < 2; i++) {
        failures += ops->fill(device, ends[i], value, 1, 4096, worker->stream) != 0;
        failures +=
            ops->copy(device, worker->host + i * 4096, ends[i], 4096, VARVE_COPY_DEVICE_TO_HOST, worker->stream) != 0;
    }
    failures += ops->stream_synchronize(device, worker->stream) != 0;
    for (size_t i = 0; i < 8192 && worker->kind->has_bytes; i++) {
        failures += seen[i] != value;
    }
    return failures;
}

/* A segment, then a mapped handle, each written and read, and an event. */
static unsigned work_once(struct worker *worker, unsigned char value)
{
    struct varve_device *device = worker->device;
    const struct varve_device_ops *ops = device->ops;
    uint64_t addr, base, handle, event;
    unsigned failures = 0;
    int error = ops->segment_alloc(device, 5 * UNIT, worker->number, &addr);
    if (error == 0) {
        failures += fill_and_look(worker, addr, 5 * UNIT, value);
        failures += ops->segment_free(device, addr, 5 * UNIT) != 0;
    }
    worker->refused += error == VARVE_ERROR_NO_MEMORY;
    failures += error != 0 && error != VARVE_ERROR_NO_MEMORY;
    error = ops->vmm_create(device, 5 * UNIT, &handle);
    if (error == 0) {
        failures += ops->vmm_reserve(device, 8 * UNIT, NULL, &base) != 0;
        failures += ops->vmm_map(device, base, 5 * UNIT, handle) != 0;
        failures += ops->vmm_set_access(device, base, 5 * UNIT, device->index) != 0;
        failures += ops->vmm_release(device, handle, 5 * UNIT) != 0;
        failures += fill_and_look(worker, base, 5 * UNIT, value);
        failures += ops->vmm_unmap(device, base, 5 * UNIT) != 0;
        failures += ops->vmm_address_free(device, base, 8 * UNIT) != 0;
    }
    worker->refused += error == VARVE_ERROR_NO_MEMORY;
    failures += error != 0 && error != VARVE_ERROR_NO_MEMORY;
    failures += ops->event_create(device, &event) != 0 || ops->event_record(device, event, worker->stream) != 0 ||
                ops->event_synchronize(device, event) != 0 || ops->event_destroy(device, event) != 0;
    return failures + (worker->kind->look_at_thread != NULL ? worker->kind->look_at_thread() : 0);
}

static void *work(void *context)
{
    struct worker *worker = context;
    for (unsigned i = 0; i < worker->rounds && worker->failures == 0; i++) {
        worker->failures += work_once(worker, (unsigned char)(worker->number * 64 + i % 64));
    }
    return NULL;
}

void rules_test_threads(void **state)
{
    struct device_play *play = *state;
    const struct device_kind *kind = play->kind;
    struct worker workers[THREADS];
    unsigned refused = 0, rounds = kind->steps != 0 ? 300 : 60;
    device_play_open(play, kind, &empty_case);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.kind = kind, .device = play->device, .number = i, .rounds = rounds};
        assert_int_equal(play->device->ops->stream_create(play->device, &workers[i].stream), 0);
        assert_int_equal(play->device->ops->host_alloc(play->device, 8192, &workers[i].host), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
    }
    for (unsigned i = 0; i < rounds && kind->hold != NULL; i++) { /* streams that stop and go on meanwhile */
        kind->hold(play->device, workers[i % THREADS].stream);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
        assert_int_equal(workers[i].failures, 0);
        refused += workers[i].refused;
    }
    assert_true(refused < THREADS * 2 * rounds);
    device_words(play, "used?0");
    device_play_close(play);
}

/* ---- random transfers ---- */

#define PIECES 6U
#define EDGE 2048U /* of what is larger, only so much at each end is used, and the middle of a mapped piece */

/* Memory that a test copies between, with what it must hold. */
struct transfer_piece {
    uint64_t addr, bytes;
    bool is_host;
    unsigned char *expected;
};

/* Three pieces of the device and three of the host; the third of the device is two mappings side by side. */
struct transfer_scene {
    struct device_play *play;
    struct varve_device *device;
    struct transfer_piece pieces[PIECES];
    uint64_t streams[2];
    uint64_t random;
    unsigned char *seen; /* room for a piece */
};

static void scene_open(struct transfer_scene *scene, struct device_play *play)
{
    static const uint64_t bytes[PIECES] = {3000, 4000, 2 * UNIT, 4000, 4000, 4000};
    device_words(play, "a=alloc:3000 b=alloc:4000 c=reserve:4u h=create:1u i=create:1u map:c:1u:h map:c+1u:1u:i "
                       "access:c:2u d=pin:4000 e=pin:4000 f=pin:4000 set:d:4000:0 set:e:4000:0 set:f:4000:0 "
                       "fill:a:0:1:3000 fill:b:0:1:4000 fill:c:0:1:2u finish t=stream u=stream");
    *scene = (struct transfer_scene){.play = play,
                                     .device = play->device,
                                     .streams = {play->named['t' - 'a'], play->named['u' - 'a']},
                                     .random = test_first_seed(4711),
                                     .seen = malloc(2 * UNIT)};
    assert_non_null(scene->seen);
    for (size_t i = 0; i < PIECES; i++) {
        unsigned char *expected = calloc(1, bytes[i]);
        assert_non_null(expected);
        scene->pieces[i] = (struct transfer_piece){play->named[i], bytes[i], i >= 3, expected};
    }
}

static void scene_close(struct transfer_scene *scene)
{
    for (size_t i = 0; i < PIECES; i++) {
        free(scene->pieces[i].expected);
    }
    free(scene->seen);
    device_words(scene->play, "unpin:d unpin:e unpin:f free:a:3000 free:b:4000 unmap:c:2u release:h:1u release:i:1u "
                              "no_stream:t no_stream:u unreserve:c:4u used?0");
}

static uint64_t below(struct transfer_scene *scene, uint64_t limit)
{
    return random_below(&scene->random, limit);
}

/* Somewhere in the piece: near one of its ends, or near its middle, where two mappings meet. */
static uint64_t transfer_offset(struct transfer_scene *scene, const struct transfer_piece *piece)
{
    if (piece->bytes > 4 * EDGE) {
        const uint64_t starts[3] = {0, piece->bytes / 2 - EDGE / 2, piece->bytes - EDGE};
        return starts[below(scene, 3)] + below(scene, EDGE);
    }
    return below(scene, piece->bytes);
}

/* What the rows of one end must be refused with, going by addresses alone. */
static int transfer_end_expected(const struct transfer_piece *piece, uint64_t offset, uint64_t pitch,
                                 const struct varve_copy_2d *copy)
{
    if (copy->rows > 1 && pitch < copy->row_bytes) {
        return VARVE_ERROR_INVALID;
    }
    for (uint64_t row = 0; row < copy->rows && !piece->is_host; row++) {
        if (offset + row * pitch + copy->row_bytes > piece->bytes) {
            return VARVE_ERROR_INVALID;
        }
    }
    return 0;
}

/* Do two rows have a byte in common; with different pitches, the ranges that all rows lie in? */
static bool transfer_overlaps(const struct varve_copy_2d *copy)
{
    uint64_t rows = copy->rows, bytes = copy->row_bytes;
    for (uint64_t i = 0; i < rows; i++) {
        for (uint64_t k = 0; k < rows; k++) {
            uint64_t to = copy->target_addr + i * copy->target_pitch;
            uint64_t from = copy->source_addr + k * copy->source_pitch;
            if (to < from + bytes && from < to + bytes) {
                return true;
            }
        }
    }
    return rows > 1 && copy->target_pitch != copy->source_pitch &&
           copy->target_addr < copy->source_addr + (rows - 1) * copy->source_pitch + bytes &&
           copy->source_addr < copy->target_addr + (rows - 1) * copy->target_pitch + bytes;
}

static enum varve_copy_direction transfer_direction(struct transfer_scene *scene, bool to_host, bool from_host)
{
    if (!to_host && !from_host) {
        return VARVE_COPY_WITHIN;
    }
    if (below(scene, 4) == 0) {
        return to_host ? VARVE_COPY_DEVICE_TO_PEER : VARVE_COPY_PEER_TO_DEVICE; /* all memory has one kind of address */
    }
    return to_host ? VARVE_COPY_DEVICE_TO_HOST : VARVE_COPY_HOST_TO_DEVICE;
}

static void transfer_copy(struct transfer_scene *scene)
{
    struct varve_device *device = scene->device;
    struct transfer_piece *target = &scene->pieces[below(scene, PIECES)];
    struct transfer_piece *source = &scene->pieces[below(scene, target->is_host ? 3 : PIECES)];
    uint64_t to = transfer_offset(scene, target), from = transfer_offset(scene, source);
    uint64_t stream = scene->streams[below(scene, 2)];
    struct varve_copy_2d copy = {.target_addr = target->addr + to,
                                 .source_addr = source->addr + from,
                                 .row_bytes = 1 + below(scene, 40),
                                 .rows = 1 + below(scene, 12)};
    if (below(scene, 3) == 0) {
        copy.rows = 1;
        copy.row_bytes = 1 + below(scene, 1500);
    }
    copy.target_pitch = copy.row_bytes + below(scene, 30);
    copy.source_pitch = below(scene, 2) ? copy.target_pitch : copy.row_bytes + below(scene, 30);
    if (below(scene, 30) == 0) {
        copy.source_pitch = copy.row_bytes - 1;
    }
    copy.direction = transfer_direction(scene, target->is_host, source->is_host);
    if ((target->is_host && to + copy.rows * copy.target_pitch + copy.row_bytes > target->bytes) ||
        (source->is_host && from + copy.rows * copy.source_pitch + copy.row_bytes > source->bytes)) {
        return; /* nobody checks host memory */
    }
    int wanted = transfer_end_expected(target, to, copy.target_pitch, &copy);
    wanted = wanted == 0 ? transfer_end_expected(source, from, copy.source_pitch, &copy) : wanted;
    wanted = wanted == 0 && transfer_overlaps(&copy) ? VARVE_ERROR_INVALID : wanted;
    int error = copy.rows == 1 ? device->ops->copy(device, copy.target_addr, copy.source_addr, copy.row_bytes,
                                                   copy.direction, stream)
                               : device->ops->copy_2d(device, &copy, stream);
    assert_int_equal(error, wanted);
    assert_int_equal(device->ops->stream_synchronize(device, stream), 0);
    for (uint64_t row = 0; error == 0 && row < copy.rows; row++) {
        memcpy(target->expected + to + row * copy.target_pitch, source->expected + from + row * copy.source_pitch,
               copy.row_bytes);
    }
}

static void transfer_fill(struct transfer_scene *scene)
{
    struct varve_device *device = scene->device;
    struct transfer_piece *piece = &scene->pieces[below(scene, 3)];
    unsigned bytes = 1U << below(scene, 4);
    uint64_t at = transfer_offset(scene, piece), count = 1 + below(scene, 300);
    uint64_t stream = scene->streams[below(scene, 2)];
    uint64_t pattern = random_next(&scene->random);
    at = below(scene, 10) != 0 ? at / bytes * bytes : at;
    pattern = below(scene, 4) == 0 ? (uint32_t)pattern * UINT64_C(0x100000001) : pattern;
    int wanted = (piece->addr + at) % bytes != 0 || at + count * bytes > piece->bytes ? VARVE_ERROR_INVALID : 0;
    int error = device->ops->fill(device, piece->addr + at, pattern, bytes, count, stream);
    assert_int_equal(error, wanted);
    assert_int_equal(device->ops->stream_synchronize(device, stream), 0);
    for (uint64_t i = 0; error == 0 && i < count * bytes; i++) {
        piece->expected[at + i] = (unsigned char)(pattern >> (i % bytes * 8));
    }
}

/* The program writes as well, while nothing is under way. */
static void transfer_write(struct transfer_scene *scene)
{
    struct transfer_piece *piece = &scene->pieces[3 + below(scene, 3)];
    unsigned char *memory = (unsigned char *)(uintptr_t)piece->addr;
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t at = below(scene, piece->bytes);
        memory[at] = piece->expected[at] = (unsigned char)random_next(&scene->random);
    }
}

static void transfer_compare(struct transfer_scene *scene, size_t step)
{
    struct varve_device *device = scene->device;
    unsigned char *seen = scene->seen;
    for (size_t i = 0; i < PIECES && scene->play->kind->has_bytes; i++) {
        struct transfer_piece *piece = &scene->pieces[i];
        if (piece->is_host) {
            memcpy(seen, (void *)(uintptr_t)piece->addr, piece->bytes);
        } else {
            assert_int_equal(device->ops->copy(device, (uint64_t)(uintptr_t)seen, piece->addr, piece->bytes,
                                               VARVE_COPY_DEVICE_TO_HOST, scene->streams[0]),
                             0);
            assert_int_equal(device->ops->stream_synchronize(device, scene->streams[0]), 0);
        }
        for (uint64_t at = 0; at < piece->bytes; at++) {
            if (seen[at] != piece->expected[at]) {
                fail_msg("%s: step %zu: piece %zu has %#x at %llu, not %#x", scene->play->kind->name, step, i, seen[at],
                         (unsigned long long)at, piece->expected[at]);
            }
        }
    }
}

void rules_test_transfers(void **state)
{
    struct device_play *play = *state;
    struct transfer_scene scene;
    device_play_open(play, play->kind, &empty_case);
    scene_open(&scene, play);
    for (size_t step = 0; step < 4000; step++) {
        uint64_t choice = below(&scene, 10);
        if (choice == 0) {
            transfer_write(&scene);
        } else if (choice < 7) {
            transfer_copy(&scene);
        } else {
            transfer_fill(&scene);
        }
        if (step % 200 == 199) {
            transfer_compare(&scene, step);
            device_check(play);
        }
    }
    scene_close(&scene);
    device_play_close(play);
}
