/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "support/alloc/rig.h"

#include <ctype.h>
#include <pthread.h>

void rig_record(void *context, const struct varve_record *record)
{
    struct rig *rig = context;
    if (rig->count < RIG_RECORDS) {
        rig->records[rig->count] = *record;
    }
    rig->count++;
}

/* ---- life ---- */

void rig_check(struct rig *rig)
{
    struct varve_message message = {""};
    if (varve_alloc_check(rig->alloc, &message) != VARVE_OK || varve_sim_check(rig->device, &message) != VARVE_OK) {
        fail_msg("%s: after record %zu: %s", rig->now != NULL ? rig->now : "", rig->count, message.text);
    }
}

void rig_open(struct rig *rig, const struct rig_options *options)
{
    struct varve_alloc_options alloc_options;
    struct varve_message message = {""};
    varve_alloc_options_init(&alloc_options);
    assert_int_equal(varve_sim_open(&options->sim, &rig->device, &message), VARVE_OK);
    if (options->config != NULL &&
        varve_alloc_config_parse(options->config, &alloc_options.config, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    rig->recorder =
        (struct varve_alloc_recorder){.record = rig_record, .context = rig, .emits_names = options->emits_names};
    alloc_options.device = rig->device;
    alloc_options.policy = options->policy;
    alloc_options.memory_limit = options->limit;
    alloc_options.recorder = &rig->recorder;
    alloc_options.config.research_after_release = options->has_research;
    if (varve_alloc_open(&alloc_options, &rig->alloc, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    rig->mark = rig->count;
    rig_check(rig);
}

void rig_close(struct rig *rig)
{
    struct varve_message message = {""};
    rig_check(rig);
    assert_true(rig->count <= RIG_RECORDS);
    varve_alloc_close(rig->alloc);
    rig->alloc = NULL;
    assert_int_equal(varve_sim_used(rig->device), 0);
    if (varve_sim_check(rig->device, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
    rig->device->ops->close(rig->device);
    rig->device = NULL;
}

int rig_setup(void **state)
{
    *state = calloc(2, sizeof(struct rig)); /* some tests need two */
    return *state == NULL;
}

int rig_teardown(void **state)
{
    struct rig *rigs = *state;
    if (rigs[0].now != NULL) {
        print_message("in the case: %s\n", rigs[0].now); /* which has failed */
    }
    for (int i = 0; i < 2; i++) {
        if (rigs[i].alloc != NULL) {
            rig_close(&rigs[i]);
        } else if (rigs[i].device != NULL) {
            rigs[i].device->ops->close(rigs[i].device);
        }
    }
    free(rigs);
    return 0;
}

/* ---- steps ---- */

uint64_t take_on(struct rig *rig, uint64_t bytes, uint64_t stream)
{
    uint64_t addr = 0;
    rig->message.text[0] = '\0';
    if (varve_alloc_raw_alloc_with_stream(rig->alloc, bytes, stream, &addr, &rig->message) != VARVE_OK) {
        fail_msg("%" PRIu64 " bytes: %s", bytes, rig->message.text);
    }
    assert_int_not_equal(addr, 0);
    rig_check(rig);
    return addr;
}

uint64_t take(struct rig *rig, uint64_t bytes)
{
    return take_on(rig, bytes, 0);
}

void refused_on(struct rig *rig, uint64_t bytes, uint64_t stream, int error)
{
    uint64_t addr = 1;
    rig->message.text[0] = '\0';
    assert_int_equal(varve_alloc_raw_alloc_with_stream(rig->alloc, bytes, stream, &addr, &rig->message), error);
    assert_int_equal(addr, 0);
    assert_string_not_equal(rig->message.text, "");
    rig_check(rig);
}

void refused(struct rig *rig, uint64_t bytes, int error)
{
    refused_on(rig, bytes, 0, error);
}

void give(struct rig *rig, uint64_t addr)
{
    if (varve_alloc_raw_delete(rig->alloc, addr, &rig->message) != VARVE_OK) {
        fail_msg("%s", rig->message.text);
    }
    rig_check(rig);
}

void use_on(struct rig *rig, uint64_t addr, uint64_t stream)
{
    if (varve_alloc_record_stream(rig->alloc, addr, stream, &rig->message) != VARVE_OK) {
        fail_msg("%s", rig->message.text);
    }
    rig_check(rig);
}

void empty_cache(struct rig *rig)
{
    assert_int_equal(varve_alloc_empty_cache(rig->alloc), VARVE_OK);
    rig_check(rig);
}

struct varve_alloc_stats stats_of(struct rig *rig)
{
    struct varve_alloc_stats stats;
    assert_int_equal(varve_alloc_get_device_stats(rig->alloc, &stats), VARVE_OK);
    return stats;
}

uint64_t calls_of(const struct rig *rig, enum varve_device_call call)
{
    return varve_sim_calls(rig->device, call);
}

static struct rig *hooked;

static int hooked_segment_alloc(struct varve_device *device, uint64_t bytes, uint64_t stream, uint64_t *addr_out)
{
    void (*call)(void *context) = hooked->on_segment_alloc;
    hooked->on_segment_alloc = NULL;
    if (call != NULL) {
        call(hooked->on_context);
        hooked->on_segment_alloc = call;
    }
    return hooked->real->segment_alloc(device, bytes, stream, addr_out);
}

static int hooked_event_synchronize(struct varve_device *device, uint64_t event)
{
    return hooked->wait_error != 0 ? hooked->wait_error : hooked->real->event_synchronize(device, event);
}

void rig_hook(struct rig *rig, void (*on_segment_alloc)(void *context), void *context)
{
    hooked = rig;
    rig->real = rig->device->ops;
    rig->ops = *rig->real;
    rig->ops.segment_alloc = hooked_segment_alloc;
    rig->ops.event_synchronize = hooked_event_synchronize;
    rig->on_segment_alloc = on_segment_alloc;
    rig->on_context = context;
    rig->device->ops = &rig->ops;
}

static void *serve_in_thread(void *context)
{
    struct rig *rig = context;
    uint64_t addr = 0;
    return varve_alloc_raw_alloc(rig->alloc, 512, &addr, NULL) == VARVE_OK &&
                   varve_alloc_raw_delete(rig->alloc, addr, NULL) == VARVE_OK
               ? NULL
               : rig;
}

bool rig_serves_another_thread(struct rig *rig)
{
    void *result = rig;
    pthread_t thread;
    return pthread_create(&thread, NULL, serve_in_thread, rig) == 0 && pthread_join(thread, &result) == 0 &&
           result == NULL;
}

/* ---- records as text ---- */

static const char *cause_name(unsigned cause)
{
    switch (cause) {
#define RIG_CAUSE(code, NAME, text) \
    case code:                      \
        return text;
        VARVE_CAUSE_LIST(RIG_CAUSE)
#undef RIG_CAUSE
    default:
        return "?";
    }
}

static const char *kind_name(unsigned kind)
{
    switch (kind) {
#define RIG_KIND(code, NAME, name, group, addr, size, requested, arg, meaning) \
    case code:                                                                 \
        return #name;
        VARVE_EVENT_LIST(RIG_KIND)
#undef RIG_KIND
    default:
        return "?";
    }
}

static int put_size(char *text, size_t room, const char *before, uint64_t bytes)
{
    return bytes % MIB == 0 ? snprintf(text, room, "%s%" PRIu64 "M", before, bytes / MIB)
                            : snprintf(text, room, "%s%" PRIu64, before, bytes);
}

static size_t put_record(char *text, size_t room, const struct varve_record *record)
{
    unsigned kind = varve_record_kind(record);
    size_t at = (size_t)snprintf(text, room, "%s", kind_name(kind));
    if (record->cause != VARVE_CAUSE_NONE) {
        at += (size_t)snprintf(text + at, room - at, " %s", cause_name(record->cause));
    }
    at += (size_t)put_size(text + at, room - at, " ", record->size);
    if (kind == VARVE_KIND_OOM_RETRY) {
        at += (size_t)put_size(text + at, room - at, " freed ", record->requested);
        at += (size_t)snprintf(text + at, room - at, "%s", record->arg ? " served" : "");
    } else if (kind == VARVE_KIND_MERGE) {
        at += (size_t)put_size(text + at, room - at, " absorbed ", record->requested);
    } else if (kind == VARVE_KIND_SPLIT) {
        at += (size_t)put_size(text + at, room - at, " left ", record->requested);
    } else if (kind == VARVE_KIND_EMPTY_CACHE) {
        at += (size_t)snprintf(text + at, room - at, " segments %" PRIu64, record->arg);
    }
    at += (size_t)snprintf(text + at, room - at, "\n");
    return at;
}

void expect(struct rig *rig, const char *expected)
{
    char text[RIG_TEXT] = "";
    size_t at = 0;
    assert_true(rig->count <= RIG_RECORDS);
    for (; rig->mark < rig->count && at < RIG_TEXT - 256; rig->mark++) {
        at += put_record(text + at, RIG_TEXT - at, &rig->records[rig->mark]);
    }
    assert_string_equal(text, expected);
}

void forget(struct rig *rig)
{
    rig->mark = rig->count;
}

const struct varve_record *nth_record(const struct rig *rig, enum varve_kind kind, size_t n)
{
    for (size_t i = rig->mark; i < rig->count; i++) {
        if (varve_record_kind(&rig->records[i]) == (unsigned)kind && n-- == 0) {
            return &rig->records[i];
        }
    }
    fail_msg("there is no such record of kind %s", kind_name(kind));
    return NULL;
}

/* ---- snapshots as text ---- */

char *layout_of(struct rig *rig)
{
    static const char states[] = "-ap";
    struct varve_alloc_snapshot snapshot;
    size_t at = 0;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    size_t room = 256 * (snapshot.segment_count + snapshot.block_count + 1);
    char *text = calloc(1, room);
    assert_non_null(text);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot.segments[i];
        at +=
            (size_t)snprintf(text + at, room - at,
                             "%#" PRIx64 " %" PRIu64 " stream %" PRIu64 " pool %" PRIu64 ",%" PRIu64
                             "%s%s active %" PRIu64 " requested %" PRIu64 "\n",
                             segment->addr, segment->bytes, segment->stream, segment->pool.capture, segment->pool.user,
                             segment->is_small ? " small" : " large", segment->is_expandable ? " expandable" : "",
                             segment->active_bytes, segment->requested_bytes);
        for (size_t k = 0; k < segment->block_count; k++) {
            const struct varve_block_info *block = &snapshot.blocks[segment->first_block + k];
            at += (size_t)snprintf(text + at, room - at, "  %#" PRIx64 " %" PRIu64 " of %" PRIu64 " %c\n", block->addr,
                                   block->bytes, block->requested, states[block->state]);
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    return text;
}

void expect_segment(struct rig *rig, uint64_t addr, const char *expected)
{
    static const char *const states[] = {" -", " a", " p"};
    struct varve_alloc_snapshot snapshot;
    char text[RIG_TEXT] = "";
    size_t at = 0;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        const struct varve_segment_info *segment = &snapshot.segments[i];
        for (size_t k = 0; segment->addr == addr && k < segment->block_count && at < RIG_TEXT - 64; k++) {
            const struct varve_block_info *block = &snapshot.blocks[segment->first_block + k];
            at += (size_t)put_size(text + at, RIG_TEXT - at, states[block->state], block->bytes);
        }
    }
    varve_alloc_snapshot_free(&snapshot);
    assert_string_equal(text[0] ? text + 1 : text, expected);
}

/* ---- plays ---- */

/* Of the segment that begins at `addr`, the pool's second number. */
static uint64_t pool_of(struct rig *rig, uint64_t addr)
{
    struct varve_alloc_snapshot snapshot;
    uint64_t user = UINT64_MAX;
    assert_int_equal(varve_alloc_snapshot(rig->alloc, &snapshot), VARVE_OK);
    for (size_t i = 0; i < snapshot.segment_count; i++) {
        user = snapshot.segments[i].addr == addr ? snapshot.segments[i].pool.user : user;
    }
    varve_alloc_snapshot_free(&snapshot);
    return user;
}

static bool is_in_pool(void *context, uint64_t stream)
{
    return stream == (uint64_t)(uintptr_t)context;
}

bool rig_find_call(const char *word, size_t length, enum varve_device_call *call_out)
{
    static const struct {
        const char *name;
        enum varve_device_call call;
    } calls[] = {
        {"asked", VARVE_DEVICE_SEGMENT_ALLOC},
        {"alloc", VARVE_DEVICE_SEGMENT_ALLOC},
        {"free", VARVE_DEVICE_SEGMENT_FREE},
        {"reserve", VARVE_DEVICE_VMM_RESERVE},
        {"create", VARVE_DEVICE_VMM_CREATE},
        {"map", VARVE_DEVICE_VMM_MAP},
        {"access", VARVE_DEVICE_VMM_SET_ACCESS},
        {"unmap", VARVE_DEVICE_VMM_UNMAP},
        {"release", VARVE_DEVICE_VMM_RELEASE},
        {"record", VARVE_DEVICE_EVENT_RECORD},
        {"query", VARVE_DEVICE_EVENT_QUERY},
        {"wait", VARVE_DEVICE_STREAM_WAIT_EVENT},
        {"alloc_async", VARVE_DEVICE_ALLOC_ASYNC},
        {"free_async", VARVE_DEVICE_FREE_ASYNC},
        {"trim", VARVE_DEVICE_POOL_TRIM},
        {"stream", VARVE_DEVICE_STREAM_CREATE},
        {"copy", VARVE_DEVICE_COPY},
        {"fill", VARVE_DEVICE_FILL},
        {"pin", VARVE_DEVICE_HOST_ALLOC},
    };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        if (strlen(calls[i].name) == length && strncmp(word, calls[i].name, length) == 0) {
            *call_out = calls[i].call;
            return true;
        }
    }
    return false;
}

/* ---- callbacks and the observer of plays ---- */

static void play_inside(void *context)
{
    struct rig *rig = context;
    char words[sizeof(rig->inside)];
    memcpy(words, rig->inside, sizeof(words));
    rig->inside[0] = '\0';
    play(rig, words);
}

static uint64_t miss_call(void *context, const struct varve_alloc_miss *miss)
{
    struct rig *rig = context;
    uint64_t addr = rig->gives[0];
    rig->called++;
    rig->miss = *miss;
    rig->gives[0] = rig->gives[1];
    rig->gives[1] = 0;
    if (addr != 0) {
        give(rig, addr);
    }
    play_inside(rig);
    return rig->answer;
}

static uint64_t resort_call(void *context, const struct varve_alloc_miss *miss)
{
    struct rig *rig = context;
    bool is_more = rig->gives[0] != 0;
    miss_call(context, miss);
    return is_more ? 20 * MIB : 0;
}

static void observe_call(void *context, const struct varve_alloc_oom *oom)
{
    struct rig *rig = context;
    rig->observed++;
    rig->oom = *oom;
    play_inside(rig);
}

static int64_t figure_of(struct rig *rig, const char *name)
{
    struct varve_alloc_stats stats = stats_of(rig);
    const struct {
        const char *name;
        int64_t value;
    } figures[] = {
        {"reserved", varve_alloc_memory_reserved(rig->alloc)},
        {"allocated", varve_alloc_memory_allocated(rig->alloc)},
        {"used", (int64_t)varve_sim_used(rig->device)},
        {"retries", stats.num_alloc_retries},
        {"ooms", stats.num_ooms},
        {"syncs", stats.num_sync_all_streams},
        {"allocs", stats.num_device_alloc},
        {"frees", stats.num_device_free},
        {"segments", stats.segment[0].current},
        {"splits", stats.inactive_split[0].current},
        {"large_splits", stats.inactive_split[VARVE_ALLOC_STAT_LARGE_POOL].current},
        {"split_bytes", stats.inactive_split_bytes[0].current},
        {"oversize", stats.oversize_allocations.current},
        {"oversize_segments", stats.oversize_segments.current},
        {"active", stats.active[0].current},
        {"active_bytes", stats.active_bytes[0].current},
        {"requested", stats.requested_bytes[0].current},
        {"allocations", stats.allocation[0].current},
        {"pool", rig->count > 0 ? rig->records[rig->count - 1].pool : 0}, /* of the last record */
        {"called", rig->called},
        {"wanted", (int64_t)rig->miss.rounded},
        {"excess", (int64_t)rig->miss.excess},
        {"is_small", rig->miss.is_small},
        {"observed", rig->observed},
#define OOM_FIGURE(member) {"oom_" #member, (int64_t)rig->oom.member}
        OOM_FIGURE(requested),
        OOM_FIGURE(rounded),
        OOM_FIGURE(segment_bytes),
        OOM_FIGURE(stream),
        OOM_FIGURE(allocated),
        OOM_FIGURE(active),
        OOM_FIGURE(reserved),
        OOM_FIGURE(pending),
        OOM_FIGURE(private_free),
        OOM_FIGURE(device_free),
        OOM_FIGURE(device_total),
        OOM_FIGURE(limit),
        OOM_FIGURE(largest_free),
        OOM_FIGURE(largest_free_any),
        OOM_FIGURE(largest_hole_free),
        OOM_FIGURE(largest_hole_bytes),
        OOM_FIGURE(blocker_bytes),
        OOM_FIGURE(stage),
#undef OOM_FIGURE
    };
    enum varve_device_call call;
    if (rig_find_call(name, strlen(name), &call)) {
        return (int64_t)calls_of(rig, call);
    }
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        if (strcmp(figures[i].name, name) == 0) {
            return figures[i].value;
        }
    }
    fail_msg("%s: there is no figure \"%s\"", rig->now, name);
    return 0;
}

static uint64_t play_size(const char **at)
{
    char *end;
    uint64_t size = strtoull(*at, &end, 10);
    size *= *end == 'M' ? MIB : *end == 'K' ? KIB : 1;
    *at = end + (*end == 'M' || *end == 'K');
    if ((**at == '+' || **at == '-') && isdigit((*at)[1])) {
        bool is_less = *(*at)++ == '-';
        uint64_t rest = play_size(at);
        size = is_less ? size - rest : size + rest;
    }
    return size;
}

static uint64_t play_place(const struct rig *rig, const char **at)
{
    uint64_t addr = rig->named[*(*at)++ - 'a'];
    if (**at == '+' || **at == '-') {
        bool is_less = *(*at)++ == '-';
        uint64_t rest = play_size(at);
        addr = is_less ? addr - rest : addr + rest;
    }
    return addr;
}

static uint64_t play_stream(const char **at)
{
    if (**at != '@') {
        return 0;
    }
    ++*at;
    return play_size(at);
}

static void play_take(struct rig *rig, const char *word)
{
    const char *at = word[1] == '=' ? word + 2 : word;
    uint64_t bytes = play_size(&at), addr = take_on(rig, bytes, play_stream(&at));
    if (*at == '>' || *at == '!') {
        bool is_there = *at++ == '>';
        uint64_t place = play_place(rig, &at);
        if ((addr == place) != is_there) {
            fail_msg("%s: %s is served at %#" PRIx64 ", that place is %#" PRIx64, rig->now, word, addr, place);
        }
    }
    if (word[1] == '=') {
        rig->named[word[0] - 'a'] = addr;
    }
}

static void play_pool(struct rig *rig, const char *word)
{
    const char *at = word + 1;
    struct varve_pool_id id = {0, play_size(&at)};
    int error;
    if (word[0] == '[') {
        bool has_filter = *at == '@';
        uint64_t stream = play_stream(&at);
        error = varve_alloc_begin_allocate_to_pool(rig->alloc, id, has_filter ? is_in_pool : NULL,
                                                   (void *)(uintptr_t)stream);
    } else if (word[0] == ']') {
        error = varve_alloc_end_allocate_to_pool(rig->alloc, id);
    } else {
        error = varve_alloc_release_pool(rig->alloc, id);
    }
    assert_int_equal(error, VARVE_OK);
}

/* fail:CALL:N or lack:CALL:N, the Nth one from now on; busy:CALL:N: the next N. */
static void play_fault(struct rig *rig, const char *word)
{
    const char *name = word + 5;
    size_t length = strcspn(name, ":");
    enum varve_device_call call;
    if (name[length] != ':' || !rig_find_call(name, length, &call)) {
        fail_msg("%s: \"%s\" names no call", rig->now, word);
        return;
    }
    uint64_t number = strtoull(name + length + 1, NULL, 10);
    int error = word[0] == 'f' ? VARVE_ERROR_IO : word[0] == 'l' ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_BUSY;
    bool is_busy = word[0] == 'b';
    assert_int_equal(varve_sim_fail(rig->device, call, is_busy ? 1 : number, is_busy ? number : 1, error), VARVE_OK);
}

/* A word that sets something, or takes a pool by its number. */
static bool play_setting(struct rig *rig, const char *word, uint64_t value)
{
    const struct varve_pool_id pool = {0, value};
    int error = VARVE_OK;
    if (strcmp(word, "limit") == 0) {
        error = varve_alloc_set_memory_limit(rig->alloc, value);
    } else if (strcmp(word, "most") == 0) {
        error = varve_alloc_set_allocated_limit(rig->alloc, value);
    } else if (strcmp(word, "percent") == 0) {
        error = varve_alloc_set_memory_fraction(rig->alloc, (double)value / 100);
        assert_float_equal(varve_alloc_get_memory_fraction(rig->alloc), (double)value / 100, 0);
    } else if (strcmp(word, "nosplit") == 0) {
        error = varve_alloc_set_no_split(rig->alloc, pool);
    } else if (strcmp(word, "gone") == 0) {
        error = varve_alloc_empty_pool(rig->alloc, pool) == VARVE_ERROR_NOT_FOUND ? VARVE_OK : VARVE_ERROR_BUSY;
    } else if (strcmp(word, "there") == 0) {
        error = varve_alloc_empty_pool(rig->alloc, pool) != VARVE_ERROR_NOT_FOUND ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
    } else if (strcmp(word, "clear") == 0) {
        error = varve_alloc_empty_pool(rig->alloc, pool);
    } else if (strcmp(word, "busy") == 0) {
        error = varve_alloc_empty_pool(rig->alloc, pool) == VARVE_ERROR_BUSY ? VARVE_OK : VARVE_ERROR_NOT_FOUND;
    } else if (strcmp(word, "nowait") == 0) {
        rig->wait_error = value != 0 ? VARVE_ERROR_IO : VARVE_OK;
    } else if (strcmp(word, "lend") == 0) {
        error = varve_alloc_set_use_on_oom(rig->alloc, pool, true);
    } else if (strcmp(word, "peer") == 0) {
        error = varve_alloc_enable_peer(rig->alloc, (int)value);
    } else if (strcmp(word, "expand") == 0) {
        struct varve_alloc_config config;
        varve_alloc_config_init(&config);
        config.expandable_segments = value != 0;
        error = varve_alloc_set_config(rig->alloc, &config, NULL);
    } else if (strcmp(word, "miss") == 0 || strcmp(word, "answer") == 0) {
        rig->answer = value != 0;
        error = word[0] == 'm' ? varve_alloc_add_miss_callback(rig->alloc, miss_call, rig) : VARVE_OK;
    } else {
        return false;
    }
    assert_int_equal(error, VARVE_OK);
    return true;
}

/* What has an equals sign and is no request, and what stands by itself. */
static void play_word(struct rig *rig, char *word)
{
    char *equals = strchr(word, '=');
    const char *at = equals != NULL ? equals + 1 : word;
    if (equals == NULL) {
        if (strcmp(word, "empty") == 0 || strcmp(word, "empty!") == 0) {
            assert_int_equal(varve_alloc_empty_cache(rig->alloc), word[5] == '!' ? VARVE_ERROR_IO : VARVE_OK);
        } else if (strncmp(word, "done@", 5) == 0) {
            at += 4;
            assert_int_equal(varve_sim_stream_complete(rig->device, play_stream(&at)), VARVE_OK);
        } else if (strcmp(word, "process") == 0) {
            assert_int_equal(varve_alloc_process_events(rig->alloc), VARVE_OK);
        } else if (strcmp(word, "resort") == 0) {
            assert_int_equal(varve_alloc_add_last_resort(rig->alloc, resort_call, rig), VARVE_OK);
        } else if (strcmp(word, "unmiss") == 0) {
            varve_alloc_remove_callbacks(rig->alloc, rig);
        } else if (strcmp(word, "device") == 0) {
            rig_hook(rig, play_inside, rig);
        } else if (strcmp(word, "observe") == 0) {
            assert_int_equal(varve_alloc_add_oom_observer(rig->alloc, observe_call, rig), VARVE_OK);
        } else if (strncmp(word, "fail:", 5) == 0 || strncmp(word, "lack:", 5) == 0 || strncmp(word, "busy:", 5) == 0) {
            play_fault(rig, word);
        } else {
            fail_msg("%s: \"%s\" is no word", rig->now, word);
        }
        return;
    }
    *equals = '\0';
    if (strcmp(word, "gives") == 0) {
        rig->gives[0] = rig->named[at[0] - 'a'];
        rig->gives[1] = at[1] != '\0' ? rig->named[at[1] - 'a'] : 0;
    } else if (!play_setting(rig, word, play_size(&at))) {
        int64_t value = figure_of(rig, word), expected = (int64_t)play_size(&(const char *){equals + 1});
        if (value != expected) {
            fail_msg("%s: %s is %" PRId64 ", not %" PRId64, rig->now, word, value, expected);
        }
    }
}
/* Words that hold blanks: `text` is what stands between the brackets. */
static void play_look(struct rig *rig, const char *place, char *text, bool is_records)
{
    size_t length = 0;
    if (strncmp(place, "in{", 3) == 0) {
        assert_true(strlen(text) < sizeof(rig->inside));
        memcpy(rig->inside, text, strlen(text) + 1);
        return;
    }
    if (strncmp(place, "says", 4) == 0) {
        if (strstr(rig->message.text, text) == NULL) {
            fail_msg("%s: \"%s\" is not in \"%s\"", rig->now, text, rig->message.text);
        }
        return;
    }
    if (!is_records) {
        expect_segment(rig, play_place(rig, &place), text);
        return;
    }
    char lines[RIG_TEXT];
    for (const char *at = text; *at != '\0' && length < sizeof(lines) - 2;) {
        if (strncmp(at, "; ", 2) == 0) {
            lines[length++] = '\n';
            at += 2;
        } else {
            lines[length++] = *at++;
        }
    }
    lines[length] = '\0';
    if (length > 0) {
        lines[length++] = '\n';
        lines[length] = '\0';
    }
    expect(rig, lines);
}

static void play_one(struct rig *rig, char *word)
{
    const char *at = word + 1;
    if (strcmp(word, "|") == 0) {
        forget(rig);
    } else if (isdigit(word[0]) || (islower(word[0]) && word[1] == '=')) {
        play_take(rig, word);
    } else if (word[0] == '-') {
        uint64_t addr = play_place(rig, &at);
        if (*at == '!') {
            assert_int_equal(varve_alloc_raw_delete(rig->alloc, addr, &rig->message),
                             strcmp(at, "!io") == 0 ? VARVE_ERROR_IO : VARVE_ERROR_NOT_FOUND);
        } else {
            give(rig, addr);
        }
    } else if (word[1] == '~') {
        at++;
        use_on(rig, rig->named[word[0] - 'a'], play_size(&at));
    } else if (word[1] == '#') {
        at++;
        assert_int_equal(pool_of(rig, rig->named[word[0] - 'a']), play_size(&at));
    } else if ((word[0] == 'x' || word[0] == 'X') && isdigit(word[1])) {
        uint64_t bytes = play_size(&at);
        refused_on(rig, bytes, play_stream(&at), word[0] == 'x' ? VARVE_ERROR_NO_MEMORY : VARVE_ERROR_IO);
    } else if (strchr("[];", word[0]) != NULL) {
        play_pool(rig, word);
    } else {
        play_word(rig, word);
    }
    rig_check(rig);
}

void play(struct rig *rig, const char *words)
{
    char copy[RIG_TEXT];
    char *at = copy;
    assert_true(strlen(words) < sizeof(copy));
    memcpy(copy, words, strlen(words) + 1);
    while (*at != '\0') {
        size_t length = strcspn(at, " <{");
        char *word = at;
        if (at[length] == '<' || at[length] == '{') {
            bool is_records = at[length] == '<';
            char *text = at + length + 1, *end = strchr(text, is_records ? '>' : '}');
            assert_non_null(end);
            *end = '\0';
            play_look(rig, word, text, is_records);
            at = end + 1;
        } else if (length > 0) {
            at += length;
            if (*at != '\0') {
                *at++ = '\0';
            }
            play_one(rig, word);
        }
        at += strspn(at, " ");
    }
}

void rig_play_cases(struct rig *rig, const struct rig_case *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        rig->now = cases[i].what;
        rig_open(rig, &cases[i].options);
        forget(rig);
        play(rig, cases[i].words);
        rig_close(rig);
        memset(rig, 0, sizeof(*rig));
    }
}
