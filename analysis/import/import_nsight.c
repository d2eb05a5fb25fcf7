/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One statement over the rows of memory, in the order of their times, with the call that made each where there is one;
 * SQLite finds it through an index of its own making, as exports have none. Ids of processes and threads carry the pid
 * in bits 24 to 47 and the tid in bits 0 to 23. What columns and kinds there are, the file says.
 */
#include "analysis/import/import_log.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/base/progress.h"
#include "analysis/query/database.h"
#include "base/error.h"
#include "trace/record.h"

#include "statements_generated.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MEMORY "CUDA_GPU_MEMORY_USAGE_EVENTS"
#define RUNTIME "CUPTI_ACTIVITY_KIND_RUNTIME"
#define KINDS_MAX 64
#define POOLS_MAX 4095U /* of bits 0 to 11 */
#define DEPTH_MAX 512
#define DEVICES 256
#define PROGRESS_ROWS 65536

#define PID_OF(globe) ((int32_t)((uint64_t)(globe) >> 24 & 0xffffff))
#define TID_OF(globe) ((uint64_t)(globe)&0xffffff)

enum column {
    COLUMN_ROWID,
    COLUMN_START,
    COLUMN_PROCESS,
    COLUMN_DEVICE,
    COLUMN_CONTEXT,
    COLUMN_ADDRESS,
    COLUMN_BYTES,
    COLUMN_KIND,
    COLUMN_OPERATION,
    COLUMN_STREAM,
    COLUMN_POOL,
    COLUMN_POOL_SIZE,
    COLUMN_CALL, /* of RUNTIME, from here on */
    COLUMN_CALL_END,
    COLUMN_CALL_THREAD,
    COLUMN_CALL_NAME,
    COLUMN_CALL_CHAIN,
};

struct reader {
    struct database *database;
    struct import_requests *requests;
    uint8_t kinds[KINDS_MAX];     /* VARVE_MEMORY_* of the file's numbers */
    int8_t operations[KINDS_MAX]; /* enum import_action; -1: unknown */
    struct map gpus;              /* pid << 16 | device of the process → number of the GPU */
    struct map pools;             /* address → number, from 1 */
    uint64_t pool_sizes[POOLS_MAX + 1];
    struct map chains; /* id → call site */
    bool has_chains, has_modules;
};

/* ---- what the numbers mean ---- */

static const struct {
    const char *label;
    enum varve_memory_kind memory;
} memory_labels[] = {
    {"Pageable", VARVE_MEMORY_PAGEABLE},
    {"Pinned", VARVE_MEMORY_PINNED},
    {"Device", VARVE_MEMORY_DEVICE},
    {"Array", VARVE_MEMORY_ARRAY},
    {"Managed", VARVE_MEMORY_MANAGED},
    {"Device Static", VARVE_MEMORY_DEVICE_STATIC},
    {"Managed Static", VARVE_MEMORY_MANAGED_STATIC},
    {"Unknown", VARVE_MEMORY_UNKNOWN},
};

#define MEMORY_LABELS (sizeof(memory_labels) / sizeof(memory_labels[0]))

static void read_kinds(struct reader *reader)
{
    for (size_t i = 0; i < MEMORY_LABELS; i++) {
        reader->kinds[i] = (uint8_t)memory_labels[i].memory; /* as all versions so far number them */
    }
    if (!database_has(reader->database, "ENUM_CUDA_MEM_KIND", "label")) {
        return;
    }
    struct cursor cursor;
    cursor_open(&cursor, reader->database, "SELECT id, label FROM ENUM_CUDA_MEM_KIND");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        for (size_t i = 0; i < MEMORY_LABELS && id >= 0 && id < KINDS_MAX; i++) {
            if (strcmp(cursor_name(&cursor, 1), memory_labels[i].label) == 0) {
                reader->kinds[id] = (uint8_t)memory_labels[i].memory;
            }
        }
    }
    cursor_close(&cursor);
}

static void read_operations(struct reader *reader)
{
    memset(reader->operations, -1, sizeof(reader->operations));
    reader->operations[0] = IMPORT_ALLOC;
    reader->operations[1] = IMPORT_FREE;
    if (!database_has(reader->database, "ENUM_CUDA_DEV_MEM_EVENT_OPER", "label")) {
        return;
    }
    struct cursor cursor;
    cursor_open(&cursor, reader->database, "SELECT id, label FROM ENUM_CUDA_DEV_MEM_EVENT_OPER");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        const char *label = cursor_name(&cursor, 1);
        if (id >= 0 && id < KINDS_MAX) {
            reader->operations[id] = (int8_t)(strcasecmp(label, "Allocation") == 0     ? IMPORT_ALLOC
                                              : strcasecmp(label, "Deallocation") == 0 ? IMPORT_FREE
                                                                                       : -1);
        }
    }
    cursor_close(&cursor);
}

/* Under CUDA_VISIBLE_DEVICES each process has numbers of its own for the machine's GPUs. */
static void read_devices(struct reader *reader)
{
    struct cursor cursor;
    if (database_has(reader->database, "TARGET_INFO_CUDA_DEVICE", "gpuId") &&
        database_has(reader->database, "TARGET_INFO_CUDA_DEVICE", "pid")) {
        cursor_open(&cursor, reader->database,
                    "SELECT pid, cudaId, gpuId FROM TARGET_INFO_CUDA_DEVICE WHERE gpuId IS NOT NULL");
        while (cursor_next(&cursor)) {
            uint64_t key =
                (uint64_t)(uint32_t)cursor_integer(&cursor, 0) << 16 | ((uint64_t)cursor_integer(&cursor, 1) & 0xffff);
            map_put(&reader->gpus, key, (uint64_t)cursor_integer(&cursor, 2));
        }
        cursor_close(&cursor);
    }
    if (!database_has(reader->database, "TARGET_INFO_GPU", "name")) {
        return;
    }
    cursor_open(&cursor, reader->database,
                database_has(reader->database, "TARGET_INFO_GPU", "totalMemory")
                    ? "SELECT id, name, totalMemory FROM TARGET_INFO_GPU"
                    : "SELECT id, name, 0 FROM TARGET_INFO_GPU");
    while (cursor_next(&cursor)) {
        int64_t bytes = cursor_integer(&cursor, 2);
        if (cursor_integer(&cursor, 0) >= 0 && cursor_integer(&cursor, 0) < DEVICES) {
            import_requests_device(reader->requests, (unsigned)cursor_integer(&cursor, 0), cursor_text(&cursor, 1),
                                   bytes > 0 ? (uint64_t)bytes : 0);
        }
    }
    cursor_close(&cursor);
}

static unsigned import_nsight_device_of(struct reader *reader, int32_t pid, int64_t number)
{
    uint64_t gpu = map_find(&reader->gpus, (uint64_t)(uint32_t)pid << 16 | ((uint64_t)number & 0xffff));
    number = gpu != MAP_NONE ? (int64_t)gpu : number;
    return number >= 0 && number < DEVICES ? (unsigned)number : 0; /* memory of the host has any */
}

static void read_processes(struct reader *reader)
{
    if (!database_has(reader->database, "PROCESSES", "name")) {
        return;
    }
    struct cursor cursor;
    cursor_open(&cursor, reader->database, "SELECT pid, name FROM PROCESSES");
    while (cursor_next(&cursor)) {
        import_requests_process(reader->requests, (int32_t)cursor_integer(&cursor, 0), cursor_text(&cursor, 1));
    }
    cursor_close(&cursor);
}

/* The function, in whatever version: cudaMalloc_v3020, cuMemAlloc_v2, cuMemFreeAsync_ptsz. */
static uint8_t import_nsight_cause_of(const char *name)
{
#define CAUSE_NAME(code, NAME, text) [code] = (text),
    static const char *const names[] = {VARVE_CAUSE_LIST(CAUSE_NAME)};
#undef CAUSE_NAME
    size_t length = strcspn(name, "_");
    for (unsigned i = VARVE_CAUSE_CUDA_MALLOC; i < sizeof(names) / sizeof(names[0]); i++) {
        if (names[i] != NULL && strlen(names[i]) == length && memcmp(names[i], name, length) == 0) {
            return (uint8_t)i;
        }
    }
    return VARVE_CAUSE_NONE;
}

/* ---- stacks ---- */

static uint32_t read_chain(struct reader *reader, int64_t id)
{
    struct cursor cursor;
    cursor_open(&cursor, reader->database, reader->has_modules ? sql_nsight_chain_with_modules : sql_nsight_chain);
    cursor_bind_integer(&cursor, 1, id);
    uint32_t symbols[DEPTH_MAX];
    size_t depth = 0;
    while (cursor_next(&cursor) && depth < DEPTH_MAX) {
        symbols[depth++] =
            import_requests_symbol(reader->requests, cursor_name(&cursor, 0), NULL, 0, cursor_text(&cursor, 1));
    }
    cursor_close(&cursor);
    return import_requests_callsite(reader->requests, symbols, depth);
}

static uint32_t import_nsight_callsite_of(struct reader *reader, int64_t chain)
{
    uint64_t found = map_find(&reader->chains, (uint64_t)chain);
    if (!reader->has_chains) {
        return 0;
    }
    if (found != MAP_NONE) {
        return (uint32_t)found;
    }
    uint32_t callsite = read_chain(reader, chain);
    map_put(&reader->chains, (uint64_t)chain, callsite);
    return callsite;
}

/* ---- rows ---- */

static unsigned import_nsight_pool_of(struct reader *reader, uint64_t addr, int64_t bytes)
{
    uint64_t found = map_find(&reader->pools, addr);
    unsigned number = found != MAP_NONE ? (unsigned)found : (unsigned)reader->pools.index.count + 1;
    if (number > POOLS_MAX) {
        return POOLS_MAX;
    }
    if (found == MAP_NONE) {
        map_put(&reader->pools, addr, number);
    }
    if (bytes > (int64_t)reader->pool_sizes[number]) {
        reader->pool_sizes[number] = (uint64_t)bytes;
    }
    return number;
}

static void import_nsight_take_call(struct reader *reader, struct cursor *cursor, struct import_request *request)
{
    int64_t begin = cursor_integer(cursor, COLUMN_CALL), end = cursor_integer(cursor, COLUMN_CALL_END);
    if (cursor_is_null(cursor, COLUMN_CALL)) {
        return;
    }
    request->took_ns = end > begin ? (uint64_t)end - (uint64_t)begin : 0;
    request->cause = import_nsight_cause_of(cursor_name(cursor, COLUMN_CALL_NAME));
    if (!cursor_is_null(cursor, COLUMN_CALL_CHAIN)) {
        request->callsite = import_nsight_callsite_of(reader, cursor_integer(cursor, COLUMN_CALL_CHAIN));
    }
}

static void import_nsight_take_row(struct reader *reader, struct cursor *cursor)
{
    uint64_t number = (uint64_t)cursor_integer(cursor, COLUMN_ROWID);
    uint64_t addr = (uint64_t)cursor_integer(cursor, COLUMN_ADDRESS);
    uint64_t bytes = (uint64_t)cursor_integer(cursor, COLUMN_BYTES);
    uint64_t pool = (uint64_t)cursor_integer(cursor, COLUMN_POOL);
    int64_t start = cursor_integer(cursor, COLUMN_START); /* of the session: never negative */
    int64_t process = cursor_integer(cursor, COLUMN_PROCESS);
    int64_t thread = cursor_integer(cursor, COLUMN_CALL_THREAD);
    uint64_t operation = (uint64_t)cursor_integer(cursor, COLUMN_OPERATION);
    uint64_t kind = (uint64_t)cursor_integer(cursor, COLUMN_KIND);
    uint64_t stream = (uint64_t)cursor_integer(cursor, COLUMN_STREAM);
    int action = operation < KINDS_MAX ? reader->operations[operation] : -1;
    import_requests_entry(reader->requests);
    if (action < 0) {
        import_requests_fault(reader->requests, IMPORT_FAULT_UNKNOWN_ACTION, number);
        return;
    }
    if (!import_is_memory(addr, bytes) || cursor_is_null(cursor, COLUMN_START) || start < 0) {
        import_requests_fault(reader->requests, IMPORT_FAULT_UNREADABLE, number);
        return;
    }
    if (addr == 0 || (bytes == 0 && action == IMPORT_ALLOC)) {
        import_requests_fault(reader->requests, IMPORT_FAULT_EMPTY, number);
        return;
    }
    unsigned memory = kind < KINDS_MAX ? reader->kinds[kind] : VARVE_MEMORY_UNKNOWN;
    struct import_request *request = import_requests_add(reader->requests, number);
    request->time_ns = start;
    request->addr = addr;
    request->size = bytes;
    request->action = (uint8_t)action;
    request->target = IMPORT_DEVICE;
    request->is_async = pool != 0;
    request->device = (uint8_t)import_nsight_device_of(reader, PID_OF(process), cursor_integer(cursor, COLUMN_DEVICE));
    request->pool = (uint16_t)(memory << VARVE_MEMORY_KIND_SHIFT);
    request->pool |= pool != 0 ? (uint16_t)import_nsight_pool_of(reader, pool, cursor_integer(cursor, COLUMN_POOL_SIZE))
                               : (uint16_t)(cursor_integer(cursor, COLUMN_CONTEXT) & 0xfff);
    import_nsight_take_call(reader, cursor, request);
    request->stream = import_requests_stream(reader->requests, stream, number);
    request->thread = import_requests_thread(reader->requests, PID_OF(process),
                                             thread != 0 ? TID_OF(thread) : (uint64_t)PID_OF(process), number);
}

/* The columns that this version of nsys has; the others are NULL. */
static char *make_statement(struct reader *reader)
{
    static const char *const columns[] = {"start",
                                          "globalPid",
                                          "deviceId",
                                          "contextId",
                                          "address",
                                          "bytes",
                                          "memKind",
                                          "memoryOperationType",
                                          "streamId",
                                          "localMemoryPoolAddress",
                                          "localMemoryPoolSize"};
    struct database *database = reader->database;
    bool has_calls = database_has(database, RUNTIME, "correlationId") && database_has(database, RUNTIME, "nameId") &&
                     database_has(database, "StringIds", "value") && database_has(database, MEMORY, "correlationId");
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = memory_stream(&text, &bytes);
    fputs("SELECT m.rowid", out);
    for (size_t i = 0; i < sizeof(columns) / sizeof(columns[0]); i++) {
        fprintf(out, database_has(database, MEMORY, columns[i]) ? ", m.%s" : ", NULL AS %s", columns[i]);
    }
    if (has_calls) {
        reader->has_chains =
            database_has(database, RUNTIME, "callchainId") && database_has(database, "CUDA_CALLCHAINS", "stackDepth");
        reader->has_modules = database_has(database, "CUDA_CALLCHAINS", "module");
        fprintf(out,
                ", r.start, r.\"end\", r.globalTid, (SELECT value FROM StringIds WHERE id = r.nameId), %s "
                "FROM " MEMORY " m LEFT JOIN " RUNTIME " r ON r.correlationId = m.correlationId AND "
                "(r.globalTid >> 24) = (m.globalPid >> 24)",
                reader->has_chains ? "r.callchainId" : "NULL");
    } else {
        fputs(", NULL, NULL, NULL, NULL, NULL FROM " MEMORY " m", out);
    }
    fputs(" ORDER BY m.start, m.rowid", out);
    memory_stream_end(out, &text);
    return text;
}

static void import_nsight_read_rows(struct reader *reader, struct progress *progress)
{
    uint64_t total = (uint64_t)database_integer(reader->database, "SELECT count(*) FROM " MEMORY, 0);
    char *sql = make_statement(reader);
    struct cursor cursor;
    cursor_open(&cursor, reader->database, sql);
    int64_t last = INT64_MIN;
    uint64_t rows = 0;
    while (cursor_next(&cursor)) {
        if (cursor_integer(&cursor, COLUMN_ROWID) == last) {
            continue; /* two calls have its number: the first one */
        }
        last = cursor_integer(&cursor, COLUMN_ROWID);
        import_nsight_take_row(reader, &cursor);
        if (progress != NULL && ++rows % PROGRESS_ROWS == 0) {
            progress_step(progress, "reading", rows, total);
        }
    }
    cursor_close(&cursor);
    free(sql);
}

/* Another database, by tables that each version of a tool has. */
static int import_nsight_refuse(struct database *database, const char *path, struct varve_message *message)
{
    if (database_has(database, RUNTIME, NULL) && database_has(database, "StringTable", NULL)) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is a profile of nvprof, which has no allocations: nsys profile "
                                 "--cuda-memory-usage=true, or varve record --cuda",
                                 path);
    }
    if (database_has(database, "META_DATA_EXPORT", NULL) || database_has(database, "TARGET_INFO_SYSTEM_ENV", NULL) ||
        database_has(database, "StringIds", NULL)) {
        return varve_message_set(message, VARVE_ERROR_FORMAT,
                                 "%s is an export of Nsight Systems without " MEMORY
                                 ": profile with --cuda-memory-usage=true, of version 2021 or newer",
                                 path);
    }
    return varve_message_set(message, VARVE_ERROR_FORMAT,
                             "%s is an SQLite database, but neither a trace nor an export of Nsight Systems", path);
}

/* A table has no more rows than its file has room for; a view, or a table of a module, can have any number. */
static int check_tables(struct database *database, const char *path, struct varve_message *message)
{
    struct cursor cursor;
    cursor_open(&cursor, database, sql_nsight_no_tables);
    int error = VARVE_OK;
    if (cursor_next(&cursor)) {
        error = varve_message_set(message, VARVE_ERROR_FORMAT,
                                  "%s: %.100s is no table of its own there, as it is in each export of Nsight Systems "
                                  "(nsys export --type sqlite)",
                                  path, cursor_name(&cursor, 0));
    }
    cursor_close(&cursor);
    return error;
}

static int import_nsight_read_all(struct reader *reader, const char *path, struct progress *progress,
                                  struct varve_message *message)
{
    int error = check_tables(reader->database, path, message);
    if (error != VARVE_OK) {
        return error;
    }
    if (!database_has(reader->database, MEMORY, "bytes")) {
        error = database_error(reader->database, message);
        return error != VARVE_OK ? error : import_nsight_refuse(reader->database, path, message);
    }
    read_kinds(reader);
    read_operations(reader);
    read_devices(reader);
    import_nsight_read_rows(reader, progress);
    read_processes(reader);
    uint64_t reserved = 0;
    for (unsigned i = 0; i <= POOLS_MAX; i++) {
        reserved += reader->pool_sizes[i];
    }
    import_requests_reserved(reader->requests, reserved);
    return database_error(reader->database, message);
}

int nsight_read(const char *path, struct import_requests *requests, struct progress *progress,
                struct varve_message *message)
{
    struct database *database;
    int error = database_open_other(path, &database, message);
    if (error != VARVE_OK) {
        return error;
    }
    struct reader *reader = memory_resize(NULL, sizeof(*reader));
    *reader = (struct reader){.database = database, .requests = requests};
    error = import_nsight_read_all(reader, path, progress, message);
    map_free(&reader->gpus);
    map_free(&reader->pools);
    map_free(&reader->chains);
    free(reader);
    database_close(database);
    return error;
}
