/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of babeltrace2 to items. What an event class is and where its fields are is looked up once for each class, by
 * name; an event is then read by index. Names of records come from VARVE_EVENT_LIST, as in the provider itself, those
 * of all else are the members of the structures in trace/sink.h. Called by the sink components, for every event.
 */
#include "analysis/import/ctf_sink.h"

#include <babeltrace2/babeltrace.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_ELEMENTS_MAX (UINT32_C(1) << 20)
#define TEXT_BYTES_MAX (UINT32_C(1) << 20)
#define FIELDS_MAX 18
#define ARRAYS_MAX 3 /* of an event */

/* ---- which field of an event goes where ---- */

enum ctf_field_use {
    CTF_FIELD_INTEGER,
    CTF_FIELD_TEXT,
    CTF_FIELD_ARRAY, /* of integers */
};

struct ctf_field_spec {
    const char *name; /* NULL: the last one was before */
    enum ctf_field_use use;
    uint8_t bytes;   /* of the member, or of an element of an array */
    uint16_t offset; /* in struct event_item, of a record in struct event_record; of a pointer: its own */
    uint16_t count;  /* of an array: where the number of its elements is */
};

struct ctf_event_spec {
    const char *name; /* without the provider's */
    enum varve_sink_item_kind kind;
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

/* An item while it is read. */
struct event_item {
    struct varve_sink_item item;
    uint32_t line_count; /* elements of callsite.lines */
};

/* clang-format off */
#define NUMBER(type, path, field) {field, CTF_FIELD_INTEGER, sizeof(((type *)0)->path), offsetof(type, path), 0}
#define TEXT(path, field) {field, CTF_FIELD_TEXT, 1, offsetof(struct event_item, item.of.path), 0}
#define ARRAY(structure, member, count) \
    {#member, CTF_FIELD_ARRAY, sizeof(*((struct event_item *)0)->item.of.structure.member), \
     offsetof(struct event_item, item.of.structure.member), offsetof(struct event_item, count)}
#define FIELDS_END {NULL, CTF_FIELD_INTEGER, 0, 0, 0}

static const struct ctf_field_spec record_fields[] = {
#define FIELD(member) NUMBER(struct event_record, member, #member)
    FIELD(process), FIELD(ring), FIELD(ring_seq), FIELD(ticks), FIELD(pid), FIELD(tid), FIELD(device), FIELD(dev_seq),
    FIELD(stream), FIELD(pool), FIELD(id), FIELD(addr), FIELD(size), FIELD(requested), FIELD(arg), FIELD(cause),
    FIELD(callsite), FIELD(flags), FIELDS_END,
#undef FIELD
};

#define FIELD(structure, member) NUMBER(struct event_item, item.of.structure.member, #member)
#define ORIGIN(structure) \
    NUMBER(struct event_item, item.of.structure.origin.process, "process"), \
    NUMBER(struct event_item, item.of.structure.origin.ring, "ring"), \
    NUMBER(struct event_item, item.of.structure.origin.pid, "pid"), \
    NUMBER(struct event_item, item.of.structure.origin.tid, "tid")

static const struct ctf_field_spec process_fields[] = {
    FIELD(process, trace_id), FIELD(process, process), FIELD(process, parent), FIELD(process, pid),
    FIELD(process, parent_pid), FIELD(process, rank), FIELD(process, clock_kind), FIELD(process, start_ticks),
    FIELD(process, start_ticks_proc), TEXT(process.executable, "executable"),
    TEXT(process.command_line, "command_line"), FIELDS_END,
};

static const struct ctf_field_spec process_end_fields[] = {
    FIELD(process_end, process), FIELD(process_end, pid), FIELD(process_end, end),
    TEXT(process_end.exec_path, "exec_path"),
    FIELDS_END,
};

static const struct ctf_field_spec thread_fields[] = {
    ORIGIN(thread), FIELD(thread, created_ticks), TEXT(thread.name, "name"), FIELDS_END,
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
    FIELD(module, number), TEXT(module.path, "path"), ARRAY(module, build_id, item.of.module.build_id_bytes),
    FIELDS_END,
};

static const struct ctf_field_spec module_gone_fields[] = {
    FIELD(module_gone, process), FIELD(module_gone, pid), FIELD(module_gone, number), FIELDS_END,
};

static const struct ctf_field_spec code_fields[] = {
    FIELD(code, process), FIELD(code, pid), FIELD(code, code), FIELD(code, first_line),
    TEXT(code.function, "function"), TEXT(code.file, "file"), FIELDS_END,
};

static const struct ctf_field_spec callsite_fields[] = {
    FIELD(callsite, process), FIELD(callsite, pid), FIELD(callsite, callsite),
    ARRAY(callsite, native, item.of.callsite.native_count), ARRAY(callsite, codes, item.of.callsite.python_count),
    ARRAY(callsite, lines, line_count), FIELDS_END,
};

static const struct ctf_field_spec meta_text_fields[] = {
    FIELD(meta, trace_id), TEXT(meta.key, "key"), TEXT(meta.text, "value"), FIELDS_END,
};

static const struct ctf_field_spec meta_integer_fields[] = {
    FIELD(meta, trace_id), TEXT(meta.key, "key"), FIELD(meta, value), FIELDS_END,
};

static const struct ctf_event_spec event_specs[] = {
#define RECORD_SPEC(code, NAME, name, group, addr, size, requested, arg, meaning) \
    {#name, VARVE_SINK_ITEM_RECORD, VARVE_KIND_##NAME, record_fields},
    VARVE_EVENT_LIST(RECORD_SPEC)
#undef RECORD_SPEC
    {"meta_process", VARVE_SINK_ITEM_PROCESS, 0, process_fields},
    {"meta_process_end", VARVE_SINK_ITEM_PROCESS_END, 0, process_end_fields},
    {"meta_thread", VARVE_SINK_ITEM_THREAD, 0, thread_fields},
    {"meta_thread_end", VARVE_SINK_ITEM_THREAD_END, 0, thread_end_fields},
    {"meta_clock", VARVE_SINK_ITEM_CLOCK, 0, clock_fields},
    {"meta_module", VARVE_SINK_ITEM_MODULE, 0, module_fields},
    {"meta_module_gone", VARVE_SINK_ITEM_MODULE_GONE, 0, module_gone_fields},
    {"meta_code", VARVE_SINK_ITEM_CODE, 0, code_fields},
    {"meta_callsite", VARVE_SINK_ITEM_CALLSITE, 0, callsite_fields},
    {"meta_text", VARVE_SINK_ITEM_META_TEXT, 0, meta_text_fields},
    {"meta_integer", VARVE_SINK_ITEM_META_INTEGER, 0, meta_integer_fields},
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

/* ---- counts ---- */

int ctf_counts_rebuild(struct varve_rebuild *rebuild, const struct ctf_counts *counts)
{
    const struct {
        const char *name;
        bool is_loss;
        uint64_t value;
    } rows[] = {
        {"ctf_statedump_events", false, counts->statedump},
        {"ctf_unknown_events", false, counts->unknown},
        {"ctf_other_events", false, counts->other},
        {"ctf_clipped_values", true, counts->clipped},
        {"lttng_events_discarded", true, counts->discarded_events},
        {"lttng_packets_discarded", true, counts->discarded_packets},
        {"lttng_discards_of_unknown_size", false, counts->uncounted},
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
    const bt_event_class *key; /* held, so that no other one can have this address */
    enum event_role role;
    const struct ctf_event_spec *spec;
    unsigned field_count;
    uint64_t seen;
    struct field fields[FIELDS_MAX];
};

struct ctf_classes {
    struct event_class **known; /* those that came often lately in front */
    size_t count, capacity;
    uint64_t clipped;
    struct event_item read; /* its texts and arrays last until the next one */
    struct scratch {
        void *bytes;
        size_t capacity;
    } scratch[ARRAYS_MAX];
    unsigned arrays; /* of the present item */
};

struct ctf_classes *ctf_classes_new(void)
{
    return calloc(1, sizeof(struct ctf_classes));
}

void ctf_classes_free(struct ctf_classes *classes)
{
    if (classes == NULL) {
        return;
    }
    for (size_t i = 0; i < classes->count; i++) {
        bt_event_class_put_ref(classes->known[i]->key);
        free(classes->known[i]);
    }
    for (size_t i = 0; i < ARRAYS_MAX; i++) {
        free(classes->scratch[i].bytes);
    }
    free(classes->known);
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

static struct event_class *class_add(struct ctf_classes *classes, const bt_event_class *key)
{
    struct event_class *class = calloc(1, sizeof(*class));
    if (class != NULL && classes->count == classes->capacity) {
        size_t capacity = classes->capacity * 2 + 64;
        struct event_class **grown = realloc(classes->known, capacity * sizeof(struct event_class *));
        if (grown == NULL) {
            free(class);
            return NULL;
        }
        classes->known = grown;
        classes->capacity = capacity;
    }
    if (class != NULL) {
        class->key = key;
        bt_event_class_get_ref(key);
        class_resolve(class);
        classes->known[classes->count++] = class;
    }
    return class;
}

/* A few classes make most of a trace: each time that one comes it moves half of the way to the front. */
static struct event_class *class_of(struct ctf_classes *classes, const bt_event_class *key)
{
    for (size_t i = 0; i < classes->count; i++) {
        struct event_class *class = classes->known[i];
        if (class->key == key) {
            classes->known[i] = classes->known[i / 2];
            classes->known[i / 2] = class;
            return class;
        }
    }
    return class_add(classes, key);
}

/* ---- events ---- */

static uint64_t ctf_event_integer_of(const bt_field *field, bool is_signed)
{
    return is_signed ? (uint64_t)bt_field_integer_signed_get_value(field) : bt_field_integer_unsigned_get_value(field);
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
static bool ctf_event_fits(uint64_t value, unsigned bytes)
{
    uint64_t above = value >> (bytes * 8);
    return above == 0 || (above == UINT64_MAX >> (bytes * 8) && (value >> (bytes * 8 - 1) & 1) != 0);
}

/* One that is longer than anything of ours is damage; a text ends at its NUL, so it is left out whole. */
static const char *ctf_event_text_of(const bt_field *field)
{
    return bt_field_string_get_length(field) < TEXT_BYTES_MAX ? bt_field_string_get_value(field) : "";
}

/* The count is that of the array, whatever the event says: a larger one would be read past its end. */
static bool ctf_event_array_read(struct ctf_classes *classes, const struct field *member, const bt_field *field,
                                 char *structure)
{
    struct scratch *scratch = &classes->scratch[classes->arrays++];
    unsigned bytes = member->spec->bytes;
    uint64_t count = bt_field_array_get_length(field);
    if (count > ARRAY_ELEMENTS_MAX) {
        count = 0; /* damage */
    }
    if (scratch->bytes == NULL || count * bytes > scratch->capacity) {
        size_t capacity = (size_t)count * bytes * 2 + 64;
        void *grown = realloc(scratch->bytes, capacity);
        if (grown == NULL) {
            return false;
        }
        scratch->bytes = grown;
        scratch->capacity = capacity;
    }
    for (uint64_t i = 0; i < count; i++) {
        const bt_field *element = bt_field_array_borrow_element_field_by_index_const(field, i);
        store((char *)scratch->bytes + i * bytes, bytes, ctf_event_integer_of(element, member->is_signed));
    }
    memcpy(structure + member->spec->offset, &scratch->bytes, sizeof(scratch->bytes));
    *(uint32_t *)(void *)(structure + member->spec->count) = (uint32_t)count;
    return true;
}

static bool fields_read(struct ctf_classes *classes, const struct event_class *class, const bt_field *payload,
                        char *structure)
{
    classes->arrays = 0;
    for (unsigned i = 0; i < class->field_count; i++) {
        const struct field *member = &class->fields[i];
        const bt_field *field = bt_field_structure_borrow_member_field_by_index_const(payload, member->index);
        if (member->spec->use == CTF_FIELD_INTEGER) {
            uint64_t value = ctf_event_integer_of(field, member->is_signed);
            if (member->may_exceed && !ctf_event_fits(value, member->spec->bytes)) {
                classes->clipped++;
            }
            store(structure + member->spec->offset, member->spec->bytes, value);
        } else if (member->spec->use == CTF_FIELD_TEXT) {
            const char *text = ctf_event_text_of(field);
            memcpy(structure + member->spec->offset, &text, sizeof(text));
        } else if (!ctf_event_array_read(classes, member, field, structure)) {
            return false;
        }
    }
    return true;
}

static void ctf_event_record_pack(struct varve_sink_item *item, const struct event_record *fields, unsigned kind)
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
    struct varve_sink_item *item = &classes->read.item;
    item->kind = class->spec->kind;
    struct event_record fields;
    if (item->kind == VARVE_SINK_ITEM_RECORD) {
        memset(&fields, 0, sizeof(fields));
        if (payload != NULL && !fields_read(classes, class, payload, (char *)&fields)) {
            return false;
        }
        ctf_event_record_pack(item, &fields, class->spec->record_kind);
        return true;
    }
    memset(&item->of, 0, sizeof(item->of));
    classes->read.line_count = 0;
    const char *none = "";
    for (const struct ctf_field_spec *spec = class->spec->fields; spec->name != NULL; spec++) {
        if (spec->use == CTF_FIELD_TEXT) {
            memcpy((char *)&classes->read + spec->offset, &none, sizeof(none));
        }
    }
    if (item->kind == VARVE_SINK_ITEM_PROCESS) {
        item->of.process.rank = -1; /* without the field: no rank, not rank 0 */
    }
    if (payload != NULL && !fields_read(classes, class, payload, (char *)&classes->read)) {
        return false;
    }
    if (item->kind == VARVE_SINK_ITEM_CALLSITE && classes->read.line_count < item->of.callsite.python_count) {
        item->of.callsite.python_count = classes->read.line_count;
    }
    return true;
}

int ctf_event_take(struct ctf_classes *classes, const bt_event *event, ctf_take *take, void *context)
{
    struct event_class *class = class_of(classes, bt_event_borrow_class_const(event));
    if (class == NULL) {
        return VARVE_ERROR_NO_MEMORY;
    }
    class->seen++;
    if (class->role != ROLE_ITEM) {
        return VARVE_OK;
    }
    if (!item_read(classes, class, bt_event_borrow_payload_field_const(event))) {
        return VARVE_ERROR_NO_MEMORY;
    }
    return take(context, &classes->read.item);
}

void ctf_classes_count(const struct ctf_classes *classes, struct ctf_counts *counts)
{
    counts->clipped += classes->clipped;
    for (size_t i = 0; i < classes->count; i++) {
        const struct event_class *class = classes->known[i];
        const char *name;
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
            *(class->spec->kind == VARVE_SINK_ITEM_RECORD ? &counts->records : &counts->definitions) += class->seen;
            break;
        }
    }
}
