/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's requests in a session that wants them: decisions arrive in the ring in their order, with the call
 * site of the request where one is due, after the device has been described; none is missing where a history
 * is kept for a while. In a session that does not want them nothing arrives.
 * Costs: 1 s
 */
#include "alloc/frontend/torch_requests.h"
#include "support/recorder.h"
#include "alloc/frontend/torch.h"
#include "trace/collector/collector.h"
#include "trace/event_list.h"
#include "trace/format/session_format.h"
#include "trace/record.h"
#include "base/error.h"
#include "trace/emit.h"
#include "trace/record_fold.h"

static const char *kind_text(unsigned kind)
{
    switch ((enum varve_kind)kind) {
#define KIND_CASE(code, NAME, name, group, addr, size, requested, arg, meaning) \
    case VARVE_KIND_##NAME:                                                     \
        return #name;
        VARVE_EVENT_LIST(KIND_CASE)
#undef KIND_CASE
    default:
        return "?";
    }
}

static uint64_t take(uint64_t bytes, uint64_t stream)
{
    struct varve_message message = {""};
    uint64_t addr = 0;
    CHECK(torch_allocate(bytes, 1, stream, &addr, &message) == VARVE_OK, "%s", message.text);
    return addr;
}

static void give(uint64_t addr)
{
    varve_torch_free((void *)(uintptr_t)addr, 1, 1, NULL);
}

static void work(void)
{
    setenv("VARVE_TORCH_DEVICE", "sim", 1);
    setenv("VARVE_TORCH_LIMIT", "1073741824", 1);
    uint64_t a = take(30 << 20, 0);
    uint64_t b = take(1000, 0x700);
    struct varve_message message;
    CHECK(torch_record_stream(a, 0x700, &message) == VARVE_OK, "record_stream");
    varve_torch_history(100, 0); /* the records take another way meanwhile */
    give(a);
    varve_torch_history(0, 0);
    give(b);
    uint64_t addr;
    CHECK(torch_allocate(UINT64_C(1) << 40, 1, 0, &addr, &message) == VARVE_ERROR_NO_MEMORY, "no oom");
    varve_torch_reset();
}

/* Kinds that carry the call site of a request. */
static bool is_due(unsigned kind)
{
    return kind == VARVE_KIND_ALLOC || kind == VARVE_KIND_SEGMENT_ALLOC || kind == VARVE_KIND_SPLIT ||
           kind == VARVE_KIND_OOM || kind == VARVE_KIND_OOM_RETRY || kind == VARVE_KIND_EMPTY_CACHE;
}

struct expectation {
    bool is_wanted, has_stacks;
};

/* The events of the records, which may be several each. */
struct events {
    struct varve_record parts[VARVE_FOLD_EVENTS_MAX];
    unsigned next, count;
};

static bool next_event(struct events *events, struct consumer *consumer, struct session *session,
                       struct varve_record *event)
{
    struct varve_record record;
    if (events->next == events->count) {
        if (!consumer_next(consumer, session, &record)) {
            return false;
        }
        events->next = 0;
        events->count = varve_record_unfold(&record, events->parts);
    }
    *event = events->parts[events->next++];
    return true;
}

static void scenario_work(struct session *session, void *context)
{
    const struct expectation *expectation = context;
    struct events events = {.count = 0};
    unsigned counts[VARVE_KIND_LIMIT] = {0};
    uint64_t dev_seq = 0, records = 0;
    CHECK(varve_torch_is_recording() == expectation->is_wanted, "is_recording");
    work();
    struct consumer consumer;
    if (!consumer_try_open(&consumer, session, 1, 1)) {
        CHECK(!expectation->is_wanted, "no ring");
        return;
    }
    ring_reader_refresh(consumer.reader);
    struct varve_record record;
    while (next_event(&events, &consumer, session, &record)) {
        unsigned kind = varve_record_kind(&record);
        if (kind == VARVE_KIND_PROCESS_START || kind == VARVE_KIND_THREAD_START || kind == VARVE_KIND_MODULE) {
            continue;
        }
        CHECK(records > 0 || kind == VARVE_KIND_DEVICE, "the first is %s", kind_text(kind));
        records++;
        counts[kind]++;
        CHECK(record.device == 1, "device %u", record.device);
        if (varve_record_dev_seq(&record) != 0) {
            CHECK(varve_record_dev_seq(&record) == ++dev_seq, "order of %s", kind_text(kind));
        }
        if (expectation->has_stacks && is_due(kind)) {
            CHECK(record.callsite != 0, "%s has no call site", kind_text(kind));
        } else if (!is_due(kind)) {
            CHECK(record.callsite == 0, "%s has a call site", kind_text(kind));
        }
    }
    if (!expectation->is_wanted) {
        CHECK(records == 0, "%llu records", (unsigned long long)records);
    } else {
        CHECK(counts[VARVE_KIND_DEVICE] == 1 && counts[VARVE_KIND_DEVICE_NAME] == 1, "device");
        CHECK(counts[VARVE_KIND_STREAM] == 1 && counts[VARVE_KIND_POOL] >= 2, "names");
        CHECK(counts[VARVE_KIND_ALLOC] == 2 && counts[VARVE_KIND_FREE_REQUESTED] == 2, "alloc");
        CHECK(counts[VARVE_KIND_RECORD_STREAM] == 1 && counts[VARVE_KIND_OOM] == 1, "oom");
        CHECK(counts[VARVE_KIND_SEGMENT_ALLOC] >= 2 && counts[VARVE_KIND_EMPTY_CACHE] == 1, "segments");
    }
    consumer_close(&consumer);
}

static void run(unsigned records, unsigned stacks, struct expectation expectation)
{
    struct session_control settings = session_settings(SESSION_OVERFLOW_SPILL, 1024);
    settings.records = records;
    settings.stacks = stacks;
    settings.stack_depth = 16;
    struct session session;
    session_begin(&session, &settings);
    run_scenario(&session, scenario_work, &expectation, "torch");
    session_end(&session);
}

TEST(test_sessions)
{
    run(VARVE_RECORDS_TORCH, SESSION_STACKS_NONE, (struct expectation){.is_wanted = true});
    run(VARVE_RECORDS_TORCH | VARVE_RECORDS_CUDA, SESSION_STACKS_NATIVE,
        (struct expectation){.is_wanted = true, .has_stacks = true});
    run(VARVE_RECORDS_CUDA, SESSION_STACKS_NATIVE, (struct expectation){.is_wanted = false});
}
