/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A heap profile for pprof, gzipped. A message of protocol buffers may be written in pieces, one behind the other: each
 * text, function, location and sample goes out as a Profile that has nothing else, so that memory follows the stacks of
 * the database and not the file.
 *
 * Addresses in a database are those within a module; here modules lie one behind the other, so that no two share an
 * address. What was inlined has a stack node of its own, with the address of its caller: such nodes are lines
 * of one location.
 */
#include "analysis/export/export.h"

#include "analysis/base/key_map.h"
#include "analysis/base/memory_or_exit.h"
#include "analysis/export/gzip_writer.h"
#include "analysis/export/track_writer.h"
#include "analysis/query/database.h"
#include "analysis/query/total_query.h"
#include "base/error.h"

#include "statements_generated.h"

#include <profile.pb-c.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX 64 /* of a location: functions inlined into each other; more of them are a location of their own */
#define FRAMES_MAX 65536        /* of a stack, as view `frame` has them */
#define MODULE_ALIGNMENT 0x1000 /* of the addresses that modules are given */
#define ADDRESS_MAX (INT64_C(1) << 47)

/* Their order in every sample. */
static const char *const value_types[][2] = {{"alloc_objects", "count"},
                                             {"alloc_space", "bytes"},
                                             {"inuse_objects", "count"},
                                             {"inuse_space", "bytes"},
                                             {"peak_space", "bytes"}};

#define VALUES (sizeof(value_types) / sizeof(value_types[0]))
#define DEFAULT_VALUE "inuse_space"

struct symbol {
    uint64_t function; /* 0: its name is not known */
    uint32_t mapping;  /* 0: none */
    uint32_t line;
    bool is_inlined;
};

struct frame {
    uint32_t symbol; /* 0: there is no such frame */
    int64_t pc;      /* < 0: none */
};

struct location {
    uint32_t frame;
    uint32_t outer; /* the location that it was inlined into, and is part of; 0: none */
    uint32_t lines; /* of both */
};

struct node {
    uint32_t location;
    uint32_t caller; /* node of the next location outwards; 0: none */
};

struct writer {
    const struct export_request *request;
    struct gzip_writer gzip;
    uint8_t *buffer;
    size_t buffer_bytes;
    struct text_table texts;
    struct map mappings;     /* by number of the path's text */
    uint64_t *module_begins; /* by mapping, from 1 on */
    size_t mapping_count, mapping_capacity;
    struct map functions; /* by numbers of name and file */
    struct symbol *symbols;
    size_t symbol_limit;
    struct frame *frames;
    size_t frame_limit;
    struct map location_numbers;
    struct location *locations; /* from 1 on */
    size_t location_count, location_capacity;
    struct node *nodes;
    size_t node_limit;
    uint64_t *path; /* FRAMES_MAX */
};

static void export_pprof_put(struct writer *writer, const Perftools__Profiles__Profile *part)
{
    size_t bytes = perftools__profiles__profile__get_packed_size(part);
    if (bytes > writer->buffer_bytes) {
        writer->buffer = memory_resize(writer->buffer, bytes);
        writer->buffer_bytes = bytes;
    }
    perftools__profiles__profile__pack(part, writer->buffer);
    gzip_writer_put(&writer->gzip, writer->buffer, bytes);
}

/* The number of a text, which is in the file from then on. */
static uint64_t export_pprof_put_text(struct writer *writer, const char *text)
{
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    char clean[FRAME_NAME_BYTES];
    char *entry = clean;
    text_clean(clean, text);
    bool is_new;
    uint64_t number = text_number(&writer->texts, clean, &is_new);
    if (is_new) {
        part.n_string_table = 1;
        part.string_table = &entry;
        export_pprof_put(writer, &part);
    }
    return number;
}

/* ---- what the profile is about ---- */

static void put_head(struct writer *writer)
{
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__ValueType period_type = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
    struct database *database = writer->request->database;
    char *command = database_meta(database, "command");
    export_pprof_put_text(writer, ""); /* entry 0, by the format */
    Perftools__Profiles__ValueType types[VALUES];
    Perftools__Profiles__ValueType *list[VALUES];
    for (size_t i = 0; i < VALUES; i++) {
        perftools__profiles__value_type__init(&types[i]);
        types[i].type = (int64_t)export_pprof_put_text(writer, value_types[i][0]);
        types[i].unit = (int64_t)export_pprof_put_text(writer, value_types[i][1]);
        list[i] = &types[i];
    }
    period_type.type = (int64_t)export_pprof_put_text(writer, "space");
    period_type.unit = (int64_t)export_pprof_put_text(writer, "bytes");
    int64_t comment = (int64_t)export_pprof_put_text(writer, command);
    part.n_sample_type = VALUES;
    part.sample_type = list;
    part.default_sample_type = (int64_t)export_pprof_put_text(writer, DEFAULT_VALUE);
    part.period_type = &period_type;
    part.period = 1; /* every allocation was recorded */
    part.time_nanos = database_meta_integer(database, "start_real_ns", 0);
    part.duration_nanos = report_duration_ns(database);
    part.n_comment = comment != 0 ? 1 : 0;
    part.comment = &comment;
    export_pprof_put(writer, &part);
    free(command);
}

/* ---- modules, functions ---- */

static void put_mapping(struct writer *writer, const char *path, const char *build_id, int64_t pc_max, uint64_t *end)
{
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT;
    Perftools__Profiles__Mapping *list = &mapping;
    int64_t last = pc_max >= 0 && pc_max < ADDRESS_MAX ? pc_max : 0;
    uint64_t filename = export_pprof_put_text(writer, path);
    if (map_find(&writer->mappings, filename) != MAP_NONE) {
        return; /* two paths that differ in what was cut, or left out */
    }
    writer->module_begins = memory_grow(writer->module_begins, &writer->mapping_capacity, writer->mapping_count + 1,
                                        sizeof(*writer->module_begins));
    mapping.id = ++writer->mapping_count;
    map_put(&writer->mappings, filename, mapping.id);
    mapping.memory_start = *end;
    mapping.memory_limit = *end + ((uint64_t)last / MODULE_ALIGNMENT + 1) * MODULE_ALIGNMENT;
    mapping.filename = (int64_t)filename;
    mapping.build_id = (int64_t)export_pprof_put_text(writer, build_id);
    mapping.has_functions = true;
    mapping.has_filenames = true;
    mapping.has_line_numbers = true;
    mapping.has_inline_frames = true;
    writer->module_begins[mapping.id] = *end;
    *end = mapping.memory_limit;
    part.n_mapping = 1;
    part.mapping = &list;
    export_pprof_put(writer, &part);
}

/* The program's own module first: pprof calls the profile by it. */
static void put_mappings(struct writer *writer)
{
    struct cursor cursor;
    cursor_open(&cursor, writer->request->database, sql_pprof_mappings);
    uint64_t end = MODULE_ALIGNMENT;
    while (cursor_next(&cursor) && writer->mapping_count < UINT16_MAX) {
        put_mapping(writer, cursor_name(&cursor, 0), cursor_text(&cursor, 1), cursor_integer(&cursor, 2), &end);
    }
    cursor_close(&cursor);
}

static uint64_t put_function(struct writer *writer, const char *name, const char *file)
{
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__Function function = PERFTOOLS__PROFILES__FUNCTION__INIT;
    Perftools__Profiles__Function *list = &function;
    uint64_t name_number = export_pprof_put_text(writer, name);
    uint64_t file_number = export_pprof_put_text(writer, file);
    uint64_t key = name_number << 32 | file_number;
    uint64_t found = map_find(&writer->functions, key);
    if (found != MAP_NONE) {
        return found;
    }
    function.id = writer->functions.index.count + 1;
    map_put(&writer->functions, key, function.id);
    function.name = (int64_t)name_number;
    function.system_name = (int64_t)name_number;
    function.filename = (int64_t)file_number;
    part.n_function = 1;
    part.function = &list;
    export_pprof_put(writer, &part);
    return function.id;
}

static void put_symbols(struct writer *writer)
{
    int64_t limit = database_number_limit(writer->request->database, "symbol");
    writer->symbol_limit = limit < UINT32_MAX ? (size_t)limit : UINT32_MAX;
    writer->symbols = memory_resize(NULL, (writer->symbol_limit + 1) * sizeof(*writer->symbols));
    memset(writer->symbols, 0, (writer->symbol_limit + 1) * sizeof(*writer->symbols));
    writer->symbols[0].function = put_function(writer, "(no stack)", "");
    struct cursor cursor;
    cursor_open(&cursor, writer->request->database,
                "SELECT id, function, file, line, module, is_inlined FROM symbol WHERE id > 0 ORDER BY id");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        const char *function = cursor_text(&cursor, 1);
        const char *module = cursor_text(&cursor, 4);
        if (id >= (int64_t)writer->symbol_limit) {
            continue;
        }
        struct symbol *symbol = &writer->symbols[id];
        uint64_t mapping = MAP_NONE;
        if (module != NULL) {
            mapping = map_find(&writer->mappings, export_pprof_put_text(writer, module));
        }
        symbol->mapping = mapping != MAP_NONE ? (uint32_t)mapping : 0;
        if (function != NULL || symbol->mapping == 0) {
            symbol->function =
                put_function(writer, function != NULL ? function : "(unresolved)", cursor_text(&cursor, 2));
        }
        symbol->line = (uint32_t)cursor_integer(&cursor, 3);
        symbol->is_inlined = cursor_integer(&cursor, 5) != 0;
    }
    cursor_close(&cursor);
}

/* ---- stacks ---- */

static void put_location(struct writer *writer, uint32_t number)
{
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__Location location = PERFTOOLS__PROFILES__LOCATION__INIT;
    Perftools__Profiles__Location *list = &location;
    location.id = number;
    Perftools__Profiles__Line lines[LINES_MAX];
    Perftools__Profiles__Line *line_list[LINES_MAX];
    for (uint32_t at = number; at != 0; at = writer->locations[at].outer) {
        const struct frame *frame = &writer->frames[writer->locations[at].frame];
        const struct symbol *symbol = &writer->symbols[frame->symbol];
        if (symbol->function != 0) {
            perftools__profiles__line__init(&lines[location.n_line]);
            lines[location.n_line].function_id = symbol->function;
            lines[location.n_line].line = symbol->line;
            line_list[location.n_line] = &lines[location.n_line];
            location.n_line++;
        }
        if (frame->pc >= 0 && frame->pc < ADDRESS_MAX && symbol->mapping != 0) {
            location.mapping_id = symbol->mapping;
            location.address = writer->module_begins[symbol->mapping] + (uint64_t)frame->pc;
        }
    }
    location.line = line_list;
    part.n_location = 1;
    part.location = &list;
    export_pprof_put(writer, &part);
}

static uint32_t find_location(struct writer *writer, uint32_t frame, uint32_t outer)
{
    uint64_t key = (uint64_t)outer << 32 | frame;
    uint64_t found = map_find(&writer->location_numbers, key);
    if (found != MAP_NONE) {
        return (uint32_t)found;
    }
    uint32_t number = (uint32_t)++writer->location_count;
    writer->locations = memory_grow(writer->locations, &writer->location_capacity, number, sizeof(*writer->locations));
    writer->locations[number] =
        (struct location){.frame = frame, .outer = outer, .lines = outer != 0 ? writer->locations[outer].lines + 1 : 1};
    map_put(&writer->location_numbers, key, number);
    put_location(writer, number);
    return number;
}

/* Frame 0, and those behind the ones of the database, one for each symbol, stand for call sites without a stack. */
static void export_pprof_read_frames(struct writer *writer)
{
    struct database *database = writer->request->database;
    int64_t limit = database_number_limit(database, "stack_frame");
    writer->frame_limit = limit < UINT32_MAX / 2 ? (size_t)limit : UINT32_MAX / 2;
    size_t all = writer->frame_limit + writer->symbol_limit + 1;
    writer->frames = memory_resize(NULL, all * sizeof(*writer->frames));
    for (size_t i = 0; i < all; i++) {
        writer->frames[i] =
            (struct frame){.symbol = i > writer->frame_limit ? (uint32_t)(i - writer->frame_limit) : 0, .pc = -1};
    }
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT id, symbol_id, coalesce(pc, -1) FROM stack_frame WHERE id > 0");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t symbol = cursor_integer(&cursor, 1);
        if (id < (int64_t)writer->frame_limit && symbol > 0 && symbol < (int64_t)writer->symbol_limit) {
            writer->frames[id] = (struct frame){.symbol = (uint32_t)symbol, .pc = cursor_integer(&cursor, 2)};
        }
    }
    cursor_close(&cursor);
}

static struct node make_node(struct writer *writer, uint32_t frame, uint32_t caller)
{
    const struct node *outer = &writer->nodes[caller];
    bool is_inlined = writer->symbols[writer->frames[frame].symbol].is_inlined;
    if (is_inlined && outer->location != 0 && writer->locations[outer->location].lines < LINES_MAX) {
        return (struct node){.location = find_location(writer, frame, outer->location), .caller = outer->caller};
    }
    return (struct node){.location = find_location(writer, frame, 0), .caller = caller};
}

/* A caller that does not come before its frame is as good as none, so that no file can make a circle. */
static void export_pprof_read_nodes(struct writer *writer)
{
    struct database *database = writer->request->database;
    int64_t limit = database_number_limit(database, "stack_node_row");
    writer->node_limit = limit < UINT32_MAX ? (size_t)limit : UINT32_MAX;
    writer->nodes = memory_resize(NULL, (writer->node_limit + 1) * sizeof(*writer->nodes));
    memset(writer->nodes, 0, (writer->node_limit + 1) * sizeof(*writer->nodes));
    struct cursor cursor;
    cursor_open(&cursor, database, "SELECT id, id - parent_lag, frame_id FROM stack_node_row WHERE id > 0 ORDER BY id");
    while (cursor_next(&cursor)) {
        int64_t id = cursor_integer(&cursor, 0);
        int64_t parent = cursor_integer(&cursor, 1);
        int64_t frame_id = cursor_integer(&cursor, 2);
        uint32_t frame = frame_id > 0 && frame_id < (int64_t)writer->frame_limit ? (uint32_t)frame_id : 0;
        uint32_t caller = parent > 0 && parent < id ? (uint32_t)parent : 0;
        if (id < (int64_t)writer->node_limit) {
            writer->nodes[id] = make_node(writer, frame, caller);
        }
    }
    cursor_close(&cursor);
}

/* ---- samples ---- */

static size_t read_path(struct writer *writer, int64_t node, int64_t symbol)
{
    if (node <= 0 || node >= (int64_t)writer->node_limit || writer->nodes[node].location == 0) {
        bool is_known = symbol > 0 && symbol < (int64_t)writer->symbol_limit;
        writer->path[0] = find_location(writer, is_known ? (uint32_t)(writer->frame_limit + (size_t)symbol) : 0, 0);
        return 1;
    }
    size_t count = 0;
    for (uint32_t at = (uint32_t)node; at != 0 && count < FRAMES_MAX; at = writer->nodes[at].caller) {
        writer->path[count++] = writer->nodes[at].location;
    }
    return count;
}

static void put_sample(struct writer *writer, struct cursor *cursor)
{
    Perftools__Profiles__Profile part = PERFTOOLS__PROFILES__PROFILE__INIT;
    Perftools__Profiles__Sample sample = PERFTOOLS__PROFILES__SAMPLE__INIT;
    Perftools__Profiles__Sample *list = &sample;
    Perftools__Profiles__Label labels[] = {PERFTOOLS__PROFILES__LABEL__INIT, PERFTOOLS__PROFILES__LABEL__INIT};
    Perftools__Profiles__Label *label_list[] = {&labels[0], &labels[1]};
    int64_t values[VALUES];
    for (size_t i = 0; i < VALUES; i++) {
        values[i] = cursor_integer(cursor, 3 + (int)i);
    }
    labels[0].key = (int64_t)export_pprof_put_text(writer, "domain");
    labels[0].str = (int64_t)export_pprof_put_text(writer, writer->request->domain);
    labels[1].key = (int64_t)export_pprof_put_text(writer, "pid");
    labels[1].num = cursor_integer(cursor, 0);
    sample.n_location_id = read_path(writer, cursor_integer(cursor, 1), cursor_integer(cursor, 2));
    sample.location_id = writer->path;
    sample.n_value = VALUES;
    sample.value = values;
    sample.n_label = cursor_is_null(cursor, 0) ? 1 : 2;
    sample.label = label_list;
    part.n_sample = 1;
    part.sample = &list;
    export_pprof_put(writer, &part);
}

static void put_samples(struct writer *writer)
{
    struct cursor cursor;
    cursor_open(&cursor, writer->request->database, sql_pprof_samples);
    cursor_bind_text(&cursor, 1, writer->request->domain);
    cursor_bind_integer(&cursor, 2, writer->request->process_id);
    bool is_empty = true;
    bool has_stacks = false;
    while (cursor_next(&cursor)) {
        is_empty = false;
        has_stacks = has_stacks || !cursor_is_null(&cursor, 1) || !cursor_is_null(&cursor, 2);
        put_sample(writer, &cursor);
    }
    cursor_close(&cursor);
    export_note_stacks(writer->request, is_empty, has_stacks);
}

static int export_pprof(const void *request, FILE *out, struct varve_message *message)
{
    struct writer writer = {.request = request};
    writer.path = memory_resize(NULL, FRAMES_MAX * sizeof(*writer.path));
    gzip_writer_begin(&writer.gzip, out);
    put_head(&writer);
    put_mappings(&writer);
    put_symbols(&writer);
    export_pprof_read_frames(&writer);
    export_pprof_read_nodes(&writer);
    put_samples(&writer);
    gzip_writer_end(&writer.gzip);
    free(writer.buffer);
    free(writer.module_begins);
    free(writer.symbols);
    free(writer.frames);
    free(writer.locations);
    free(writer.nodes);
    free(writer.path);
    text_table_free(&writer.texts);
    map_free(&writer.mappings);
    map_free(&writer.functions);
    map_free(&writer.location_numbers);
    return database_error(writer.request->database, message);
}

const struct export_format export_format_pprof = {
    .name = "pprof",
    .meaning = "A gzipped profile.proto for `go tool pprof`, of one domain: alloc_objects, alloc_space, "
               "inuse_objects, inuse_space (shown first) as in a heap profile of Go, and peak_space; a sample for "
               "each call site of each process, labelled with domain and pid; whole stacks with inlined functions, "
               "and modules with their build ids. Addresses are made up: modules lie one behind the other.",
    .write = export_pprof,
    .is_binary = true,
    .takes_part = true,
    .wants_domain = true,
};
