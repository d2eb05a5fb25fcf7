/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of babeltrace2 to items. What an event class is and where its fields are is looked up once for each class, by
 * name; an event is then read by index. Names of records come from VARVE_EVENT_LIST, as in the provider itself, those
 * of all else are the members of the structures in trace/sink.h. Called by the sink components, for every event.
 */
#include "analysis/import/ctf/plugin/event.h"

#include <babeltrace2/babeltrace.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_ELEMENTS_MAX (UINT32_C(1) << 20)
#define TEXT_BYTES_MAX (UINT32_C(1) << 20)
#define FIELDS_MAX 18

/* ---- which field of an event goes where ---- */

enum ctf_field_use {
    CTF_FIELD_INTEGER,
    CTF_FIELD_TEXT,
    CTF_FIELD_ARRAY, /* of integers */
};

struct ctf_field_spec {
    const char *name; /* NULL: the last one was before */
    uint16_t offset;  /* in struct ctf_item, of a record in struct event_record; of a part: its number */
    uint8_t bytes;    /* of the member, or of an element of an array */
    enum ctf_field_use use;
};

struct ctf_event_spec {
    const char *name; /* without the provider's */
    enum ctf_item_kind kind;
    unsigned record_kind;
    const struct ctf_field_spec *fields; /* at most FIELDS_MAX */
};

/* The fields of a record, before they are packed. */
struct event_record {
    uint64_t ring_seq, ticks, dev_seq, id, addr, size, requested, arg;
    uint32_t process, ring, callsite;
    int32_t pid, tid;
    uint16_t stream, pool;
    uint8_t device, cause, flags;
};

/* clang-format off */
#define NUMBER(type, path, field) {field, offsetof(type, path), sizeof(((type *)0)->path), CTF_FIELD_INTEGER}
#define TEXT(part, field) {field, part, 1, CTF_FIELD_TEXT}
#define ARRAY(part, type, field) {field, part, sizeof(type), CTF_FIELD_ARRAY}
#define FIELDS_END {NULL, 0, 0, CTF_FIELD_INTEGER}

static const struct ctf_field_spec record_fields[] = {
#define FIELD(member) NUMBER(struct event_record, member, #member)
    FIELD(process), FIELD(ring), FIELD(ring_seq), FIELD(ticks), FIELD(pid), FIELD(tid), FIELD(device), FIELD(dev_seq),
    FIELD(stream), FIELD(pool), FIELD(id), FIELD(addr), FIELD(size), FIELD(requested), FIELD(arg), FIELD(cause),
    FIELD(callsite), FIELD(flags), FIELDS_END,
#undef FIELD
};

#define FIELD(structure, member) NUMBER(struct ctf_item, of.structure.member, #member)
#define ORIGIN(structure) \
    NUMBER(struct ctf_item, of.structure.origin.process, "process"), \
    NUMBER(struct ctf_item, of.structure.origin.ring, "ring"), \
    NUMBER(struct ctf_item, of.structure.origin.pid, "pid"), \
    NUMBER(struct ctf_item, of.structure.origin.tid, "tid")

static const struct ctf_field_spec process_fields[] = {
    FIELD(process, trace_id), FIELD(process, process), FIELD(process, parent), FIELD(process, pid),
    FIELD(process, parent_pid), FIELD(process, rank), FIELD(process, clock_kind), FIELD(process, start_ticks),
    FIELD(process, start_ticks_proc), TEXT(0, "executable"), TEXT(1, "command_line"), FIELDS_END,
};

static const struct ctf_field_spec process_end_fields[] = {
    FIELD(process_end, process), FIELD(process_end, pid), FIELD(process_end, end), TEXT(0, "exec_path"),
    FIELDS_END,
};

static const struct ctf_field_spec thread_fields[] = {
    ORIGIN(thread), FIELD(thread, created_ticks), TEXT(0, "name"), FIELDS_END,
};

static const struct ctf_field_spec thread_end_fields[] = {
    ORIGIN(thread_end), FIELD(thread_end, emitted), FIELD(thread_end, lost), FIELD(thread_end, lost_bytes),
    FIELDS_END,
};

static const struct ctf_field_spec clock_fields[] = {
    FIELD(clock, trace_id), FIELD(clock, ticks), FIELD(clock, mono_ns), FIELD(clock, real_ns), FIELDS_END,
};

static const struct ctf_field_spec module_fields[] = {
    FIELD(module, process), FIELD(module, pid), FIELD(module, base), FIELD(module, end), FIELD(module, bias),
    FIELD(module, number), TEXT(0, "path"), ARRAY(1, uint8_t, "build_id"), FIELDS_END,
};

static const struct ctf_field_spec module_gone_fields[] = {
    FIELD(module_gone, process), FIELD(module_gone, pid), FIELD(module_gone, number), FIELDS_END,
};

static const struct ctf_field_spec code_fields[] = {
    FIELD(code, process), FIELD(code, pid), FIELD(code, code), FIELD(code, first_line), TEXT(0, "function"),
    TEXT(1, "file"), FIELDS_END,
};

static const struct ctf_field_spec callsite_fields[] = {
    FIELD(callsite, process), FIELD(callsite, pid), FIELD(callsite, callsite), ARRAY(0, uint64_t, "native"),
    ARRAY(1, uint32_t, "codes"), ARRAY(2, uint32_t, "lines"), FIELDS_END,
};

static const struct ctf_field_spec meta_text_fields[] = {
    FIELD(meta, trace_id), TEXT(0, "key"), TEXT(1, "value"), FIELDS_END,
};

static const struct ctf_field_spec meta_integer_fields[] = {
    FIELD(meta, trace_id), TEXT(0, "key"), FIELD(meta, value), FIELDS_END,
};

static const struct ctf_event_spec event_specs[] = {
#define RECORD_SPEC(code, NAME, name, group, addr, size, requested, arg, meaning) \
    {#name, CTF_ITEM_RECORD, VARVE_KIND_##NAME, record_fields},
    VARVE_EVENT_LIST(RECORD_SPEC)
#undef RECORD_SPEC
    {"meta_process", CTF_ITEM_PROCESS, 0, process_fields},
    {"meta_process_end", CTF_ITEM_PROCESS_END, 0, process_end_fields},
    {"meta_thread", CTF_ITEM_THREAD, 0, thread_fields},
    {"meta_thread_end", CTF_ITEM_THREAD_END, 0, thread_end_fields},
    {"meta_clock", CTF_ITEM_CLOCK, 0, clock_fields},
    {"meta_module", CTF_ITEM_MODULE, 0, module_fields},
    {"meta_module_gone", CTF_ITEM_MODULE_GONE, 0, module_gone_fields},
    {"meta_code", CTF_ITEM_CODE, 0, code_fields},
    {"meta_callsite", CTF_ITEM_CALLSITE, 0, callsite_fields},
    {"meta_text", CTF_ITEM_META_TEXT, 0, meta_text_fields},
    {"meta_integer", CTF_ITEM_META_INTEGER, 0, meta_integer_fields},
};
/* clang-format on */

/* What an event of ours is, by its name; NULL if it is not known. */
static const struct ctf_event_spec *event_spec(const char *name)
{
    for (size_t i = 0; i < sizeof(event_specs) / sizeof(event_specs[0]); i++) {
        if (strcmp(name, event_specs[i].name) == 0) {
            return &event_specs[i];
        }
    }
    return NULL;
}

/* ---- items ---- */

/* How many texts an item has; its other parts are arrays. */
static unsigned item_texts(enum ctf_item_kind kind)
{
    switch (kind) {
    case CTF_ITEM_PROCESS:
    case CTF_ITEM_CODE:
    case CTF_ITEM_META_TEXT:
        return 2;
    case CTF_ITEM_PROCESS_END:
    case CTF_ITEM_THREAD:
    case CTF_ITEM_MODULE:
    case CTF_ITEM_META_INTEGER:
        return 1;
    default:
        return 0;
    }
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Counts are those of the arrays, whatever the event says: a larger one would be read past their ends. */
static void bind_arrays(struct ctf_item *item)
{
    struct varve_sink_callsite *callsite = &item->of.callsite;
    struct varve_sink_module *module = &item->of.module;

    if (item->kind == CTF_ITEM_MODULE) {
        module->path = item->parts[0].data;
        module->build_id = item->parts[1].data;
        module->build_id_bytes = item->parts[1].bytes;
        return;
    }
    callsite->native = item->parts[0].data;
    callsite->codes = item->parts[1].data;
    callsite->lines = item->parts[2].data;
    callsite->native_count = item->parts[0].bytes / (uint32_t)sizeof(callsite->native[0]);
    callsite->python_count =
        least(item->parts[1].bytes, item->parts[2].bytes) / (uint32_t)sizeof(callsite->codes[0]);
}

/* Let the structure of an item point to its parts. */
static void item_bind(struct ctf_item *item)
{
    switch (item->kind) {
    case CTF_ITEM_PROCESS:
        item->of.process.executable = item->parts[0].data;
        item->of.process.command_line = item->parts[1].data;
        break;
    case CTF_ITEM_PROCESS_END:
        item->of.process_end.exec_path = item->parts[0].data;
        break;
    case CTF_ITEM_THREAD:
        item->of.thread.name = item->parts[0].data;
        break;
    case CTF_ITEM_CODE:
        item->of.code.function = item->parts[0].data;
        item->of.code.file = item->parts[1].data;
        break;
    case CTF_ITEM_MODULE:
    case CTF_ITEM_CALLSITE:
        bind_arrays(item);
        break;
    default:
        break;
    }
}

int ctf_item_rebuild(struct varve_rebuild *rebuild, const struct ctf_item *item)
{
    switch (item->kind) {
    case CTF_ITEM_RECORD:
        return varve_rebuild_record(rebuild, &item->of.record.origin, item->of.record.ring_seq,
                                    &item->of.record.record);
    case CTF_ITEM_PROCESS:
        return varve_rebuild_process(rebuild, &item->of.process);
    case CTF_ITEM_PROCESS_END:
        return varve_rebuild_process_end(rebuild, &item->of.process_end);
    case CTF_ITEM_THREAD:
        return varve_rebuild_thread(rebuild, &item->of.thread);
    case CTF_ITEM_THREAD_END:
        return varve_rebuild_thread_end(rebuild, &item->of.thread_end);
    case CTF_ITEM_CLOCK:
        return varve_rebuild_clock(rebuild, &item->of.clock);
    case CTF_ITEM_MODULE:
        return varve_rebuild_module(rebuild, &item->of.module);
    case CTF_ITEM_MODULE_GONE:
        return varve_rebuild_module_gone(rebuild, item->of.module_gone.process, item->of.module_gone.pid,
                                         item->of.module_gone.number);
    case CTF_ITEM_CODE:
        return varve_rebuild_code(rebuild, &item->of.code);
    case CTF_ITEM_CALLSITE:
        return varve_rebuild_callsite(rebuild, &item->of.callsite);
    case CTF_ITEM_META_TEXT:
        return varve_rebuild_meta_text(rebuild, item->of.meta.trace_id, item->parts[0].data,
                                       item->parts[1].data);
    case CTF_ITEM_META_INTEGER:
        return varve_rebuild_meta_integer(rebuild, item->of.meta.trace_id, item->parts[0].data,
                                          item->of.meta.value);
    default:
        return VARVE_OK;
    }
}

/* ---- counts ---- */

#define COUNT_LIST(X)                                     \
    X(statedump, "ctf_statedump_events", false)           \
    X(unknown, "ctf_unknown_events", false)               \
    X(other, "ctf_foreign_events", false)                 \
    X(clipped, "ctf_clipped_values", true)                \
    X(discarded_events, "lttng_events_discarded", true)   \
    X(discarded_packets, "lttng_packets_discarded", true) \
    X(uncounted, "lttng_discards_of_unknown_size", false)

int ctf_counts_rebuild(struct varve_rebuild *rebuild, const struct ctf_counts *counts)
{
    const struct {
        const char *name;
        bool is_loss;
        uint64_t value;
    } rows[] = {
#define COUNT_ROW(member, name, is_loss) {name, is_loss, counts->member},
        COUNT_LIST(COUNT_ROW)
#undef COUNT_ROW
    };
    int error = VARVE_OK;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && error == VARVE_OK; i++) {
        if (rows[i].value > 0) {
            error = varve_rebuild_stat(rebuild, rows[i].name, rows[i].is_loss, rows[i].value);
        }
    }
    return error;
}

/* Providers for which there is no room have no name in the end. */
static void provider_add(struct ctf_counts *counts, const char *name, uint64_t events)
{
    size_t length = strcspn(name, ":");

    if (length >= sizeof(counts->providers[0].name)) {
        length = sizeof(counts->providers[0].name) - 1;
    }
    for (size_t i = 0; i < CTF_PROVIDERS; i++) {
        char *known = counts->providers[i].name;

        if (known[0] == '\0') {
            memcpy(known, name, length);
            known[length] = '\0';
        }
        if (strlen(known) == length && memcmp(known, name, length) == 0) {
            counts->providers[i].events += events;
            return;
        }
    }
}

void ctf_counts_other(struct ctf_counts *counts, const char *name, uint64_t events)
{
    counts->other += events;
    provider_add(counts, name, events);
}

/* ---- event classes ---- */

enum event_role {
    ROLE_OTHER,
    ROLE_UNKNOWN,   /* ours, but nothing that is known here */
    ROLE_STATEDUMP, /* what was there before: no event, and no part of the tables */
    ROLE_ITEM,
};

struct field {
    uint16_t index; /* in the event's payload */
    bool is_signed;
    bool may_exceed; /* wider than its member */
    const struct ctf_field_spec *spec;
};

struct event_class {
    const bt_event_class *key; /* held, so that no other one can have this address; NULL: a free slot */
    enum event_role role;
    const struct ctf_event_spec *spec;
    unsigned field_count;
    uint64_t seen;
    struct field fields[FIELDS_MAX];
};

struct ctf_classes {
    struct event_class **slots; /* by address; open addressing */
    size_t capacity, count;
    struct event_class *last;
    uint64_t clipped;
    struct ctf_item item;
    void *scratch[CTF_PARTS]; /* of arrays */
    size_t scratch_bytes[CTF_PARTS];
};

struct ctf_classes *ctf_classes_new(void)
{
    struct ctf_classes *classes = calloc(1, sizeof(*classes));

    if (classes != NULL) {
        classes->capacity = 256;
        classes->slots = calloc(classes->capacity, sizeof(classes->slots[0]));
        if (classes->slots == NULL) {
            free(classes);
            return NULL;
        }
    }
    return classes;
}

void ctf_classes_free(struct ctf_classes *classes)
{
    if (classes == NULL) {
        return;
    }
    for (size_t i = 0; i < classes->capacity; i++) {
        if (classes->slots[i] != NULL) {
            bt_event_class_put_ref(classes->slots[i]->key);
            free(classes->slots[i]);
        }
    }
    for (size_t i = 0; i < CTF_PARTS; i++) {
        free(classes->scratch[i]);
    }
    free(classes->slots);
    free(classes);
}

static bool class_fits(const bt_field_class *class, enum ctf_field_use use)
{
    bt_field_class_type type = bt_field_class_get_type(class);

    switch (use) {
    case CTF_FIELD_INTEGER:
        return bt_field_class_type_is(type, BT_FIELD_CLASS_TYPE_INTEGER);
    case CTF_FIELD_TEXT:
        return type == BT_FIELD_CLASS_TYPE_STRING;
    default:
        return bt_field_class_type_is(type, BT_FIELD_CLASS_TYPE_ARRAY) &&
               class_fits(bt_field_class_array_borrow_element_field_class_const(class), CTF_FIELD_INTEGER);
    }
}

static void fields_find(struct event_class *class, const bt_field_class *payload)
{
    uint64_t count = bt_field_class_structure_get_member_count(payload);

    for (const struct ctf_field_spec *spec = class->spec->fields; spec->name != NULL; spec++) {
        for (uint64_t i = 0; i < count && i <= UINT16_MAX; i++) {
            const bt_field_class_structure_member *member =
                bt_field_class_structure_borrow_member_by_index_const(payload, i);
            const bt_field_class *type = bt_field_class_structure_member_borrow_field_class_const(member);
            struct field *field = &class->fields[class->field_count];

            if (strcmp(bt_field_class_structure_member_get_name(member), spec->name) != 0 ||
                !class_fits(type, spec->use)) {
                continue;
            }
            *field = (struct field){.index = (uint16_t)i, .spec = spec};
            if (spec->use == CTF_FIELD_ARRAY) {
                type = bt_field_class_array_borrow_element_field_class_const(type);
            }
            if (spec->use != CTF_FIELD_TEXT) {
                field->is_signed =
                    bt_field_class_type_is(bt_field_class_get_type(type), BT_FIELD_CLASS_TYPE_SIGNED_INTEGER);
                field->may_exceed = bt_field_class_integer_get_field_value_range(type) > spec->bytes * 8U;
            }
            class->field_count++;
            break;
        }
    }
}

static void class_resolve(struct event_class *class)
{
    static const char ours[] = "varve:";
    static const char statedump[] = "statedump_";
    const char *name = bt_event_class_get_name(class->key);
    const bt_field_class *payload = bt_event_class_borrow_payload_field_class_const(class->key);

    if (name == NULL || strncmp(name, ours, strlen(ours)) != 0) {
        return;
    }
    name += strlen(ours);
    class->role = strncmp(name, statedump, strlen(statedump)) == 0 ? ROLE_STATEDUMP : ROLE_UNKNOWN;
    class->spec = event_spec(name);
    if (class->spec != NULL) {
        class->role = ROLE_ITEM;
        if (payload != NULL) {
            fields_find(class, payload);
        }
    }
}

static size_t slot_of(const struct ctf_classes *classes, const bt_event_class *key)
{
    size_t slot = ((uintptr_t)key >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 20;

    for (;; slot++) {
        const struct event_class *class = classes->slots[slot & (classes->capacity - 1)];

        if (class == NULL || class->key == key) {
            return slot & (classes->capacity - 1);
        }
    }
}

static bool slots_grow(struct ctf_classes *classes)
{
    struct ctf_classes grown = {.capacity = classes->capacity * 2};

    grown.slots = calloc(grown.capacity, sizeof(grown.slots[0]));
    if (grown.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < classes->capacity; i++) {
        if (classes->slots[i] != NULL) {
            grown.slots[slot_of(&grown, classes->slots[i]->key)] = classes->slots[i];
        }
    }
    free(classes->slots);
    classes->slots = grown.slots;
    classes->capacity = grown.capacity;
    return true;
}

static struct event_class *class_add(struct ctf_classes *classes, const bt_event_class *key)
{
    struct event_class *class = calloc(1, sizeof(*class));

    if (class == NULL || (classes->count >= classes->capacity / 2 && !slots_grow(classes))) {
        free(class);
        return NULL;
    }
    class->key = key;
    bt_event_class_get_ref(key);
    class_resolve(class);
    classes->slots[slot_of(classes, key)] = class;
    classes->count++;
    return class;
}

/* ---- events ---- */

static uint64_t integer_of(const bt_field *field, bool is_signed)
{
    return is_signed ? (uint64_t)bt_field_integer_signed_get_value(field)
                     : bt_field_integer_unsigned_get_value(field);
}

static void store(void *target, unsigned bytes, uint64_t value)
{
    switch (bytes) {
    case 1:
        *(uint8_t *)target = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)target = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)target = (uint32_t)value;
        break;
    default:
        *(uint64_t *)target = value;
        break;
    }
}

/* Does it say the same with so many bytes, with or without a sign? */
static bool fits(uint64_t value, unsigned bytes)
{
    uint64_t above = value >> (bytes * 8);

    return above == 0 || (above == UINT64_MAX >> (bytes * 8) && (value >> (bytes * 8 - 1) & 1) != 0);
}

static void part_text(struct ctf_part *part, const bt_field *field)
{
    const char *text = bt_field_string_get_value(field);
    uint64_t length = bt_field_string_get_length(field);

    /* One that is longer than anything of ours is damage; a text ends at its NUL, so it is left out whole. */
    *part = length < TEXT_BYTES_MAX ? (struct ctf_part){text, (uint32_t)strlen(text) + 1}
                                    : (struct ctf_part){"", 1};
}

static bool part_array(struct ctf_classes *classes, const struct field *member, const bt_field *field)
{
    unsigned number = member->spec->offset;
    unsigned bytes = member->spec->bytes;
    uint64_t count = bt_field_array_get_length(field);
    unsigned char *elements;
    size_t needed;

    if (count > ARRAY_ELEMENTS_MAX) {
        count = 0; /* damage */
    }
    needed = (size_t)count * bytes;
    if (needed > classes->scratch_bytes[number]) {
        void *grown = realloc(classes->scratch[number], needed * 2 + 64);

        if (grown == NULL) {
            return false;
        }
        classes->scratch[number] = grown;
        classes->scratch_bytes[number] = needed * 2 + 64;
    }
    elements = classes->scratch[number];
    for (uint64_t i = 0; i < count; i++) {
        const bt_field *element = bt_field_array_borrow_element_field_by_index_const(field, i);

        store(elements + i * bytes, bytes, integer_of(element, member->is_signed));
    }
    classes->item.parts[number] = (struct ctf_part){elements, (uint32_t)needed};
    return true;
}

static bool fields_read(struct ctf_classes *classes, const struct event_class *class, const bt_field *payload,
                        void *structure)
{
    for (unsigned i = 0; i < class->field_count; i++) {
        const struct field *member = &class->fields[i];
        const bt_field *field = bt_field_structure_borrow_member_field_by_index_const(payload, member->index);

        if (member->spec->use == CTF_FIELD_INTEGER) {
            uint64_t value = integer_of(field, member->is_signed);

            if (member->may_exceed && !fits(value, member->spec->bytes)) {
                classes->clipped++;
            }
            store((unsigned char *)structure + member->spec->offset, member->spec->bytes, value);
        } else if (member->spec->use == CTF_FIELD_TEXT) {
            part_text(&classes->item.parts[member->spec->offset], field);
        } else if (!part_array(classes, member, field)) {
            return false;
        }
    }
    return true;
}

static void record_pack(struct ctf_item *item, const struct event_record *fields, unsigned kind)
{
    item->of.record.origin = (struct varve_sink_origin){
        .process = fields->process, .ring = fields->ring, .pid = fields->pid, .tid = fields->tid};
    item->of.record.ring_seq = fields->ring_seq;
    item->of.record.record = (struct varve_record){
        .ticks = fields->ticks,
        .addr = fields->addr,
        .size = fields->size,
        .requested = fields->requested,
        .arg = fields->arg,
        .id_stream = (fields->id & UINT64_C(0xffffffffffff)) | (uint64_t)fields->stream << 48,
        .dev_seq_kind_flags =
            varve_record_tag(fields->dev_seq, (enum varve_kind)kind, fields->flags & VARVE_FLAGS_STORED),
        .callsite = fields->callsite,
        .pool = fields->pool,
        .device = fields->device,
        .cause = fields->cause,
    };
}

static bool item_read(struct ctf_classes *classes, const struct event_class *class, const bt_field *payload)
{
    struct ctf_item *item = &classes->item;
    struct event_record fields;
    unsigned texts;

    item->kind = class->spec->kind;
    if (item->kind == CTF_ITEM_RECORD) {
        memset(&fields, 0, sizeof(fields));
        if (payload != NULL && !fields_read(classes, class, payload, &fields)) {
            return false;
        }
        record_pack(item, &fields, class->spec->record_kind);
        return true;
    }
    texts = item_texts(item->kind);
    memset(&item->of, 0, sizeof(item->of));
    for (unsigned i = 0; i < CTF_PARTS; i++) {
        item->parts[i] = i < texts ? (struct ctf_part){"", 1} : (struct ctf_part){NULL, 0};
    }
    if (item->kind == CTF_ITEM_PROCESS) {
        item->of.process.rank = -1; /* without the field: no rank, not rank 0 */
    }
    if (payload != NULL && !fields_read(classes, class, payload, item)) {
        return false;
    }
    item_bind(item);
    return true;
}

int ctf_event_take(struct ctf_classes *classes, const bt_event *event, ctf_take *take, void *context)
{
    const bt_event_class *key = bt_event_borrow_class_const(event);
    struct event_class *class = classes->last;

    if (class == NULL || class->key != key) {
        class = classes->slots[slot_of(classes, key)];
        if (class == NULL) {
            class = class_add(classes, key);
        }
        if (class == NULL) {
            return VARVE_ERROR_NO_MEMORY;
        }
        classes->last = class;
    }
    class->seen++;
    if (class->role != ROLE_ITEM) {
        return VARVE_OK;
    }
    if (!item_read(classes, class, bt_event_borrow_payload_field_const(event))) {
        return VARVE_ERROR_NO_MEMORY;
    }
    return take(context, &classes->item);
}

void ctf_classes_count(const struct ctf_classes *classes, struct ctf_counts *counts)
{
    counts->clipped += classes->clipped;
    for (size_t i = 0; i < classes->capacity; i++) {
        const struct event_class *class = classes->slots[i];
        const char *name;

        if (class == NULL) {
            continue;
        }
        switch (class->role) {
        case ROLE_OTHER:
            name = bt_event_class_get_name(class->key);
            ctf_counts_other(counts, name != NULL && name[0] != '\0' ? name : "?", class->seen);
            break;
        case ROLE_UNKNOWN:
            counts->unknown += class->seen;
            break;
        case ROLE_STATEDUMP:
            counts->statedump += class->seen;
            break;
        case ROLE_ITEM:
            *(class->spec->kind == CTF_ITEM_RECORD ? &counts->records : &counts->definitions) += class->seen;
            break;
        }
    }
}
