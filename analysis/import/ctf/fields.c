/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of babeltrace2 to items. What an event class is and where its fields are is looked up once for each
 * class, by name; an event is then read by index. A trace may come from another version of varve: fields that
 * are missing are 0, their order, width and sign do not matter, what is new is passed over, and events of
 * ours by a name that is not known are counted. Called by the sink component, for every event.
 */
#include "analysis/import/ctf/fields.h"

#include <babeltrace2/babeltrace.h>
#include <stdlib.h>
#include <string.h>

#define ARRAY_ELEMENTS_MAX (UINT32_C(1) << 20)
#define TEXT_BYTES_MAX (UINT32_C(1) << 20)

/* ---- event classes ---- */

enum event_role {
    ROLE_FOREIGN,
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
    struct field fields[CTF_FIELDS_MAX];
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
    class->spec = ctf_event_spec(name);
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

static void store(void *place, unsigned bytes, uint64_t value)
{
    switch (bytes) {
    case 1:
        *(uint8_t *)place = (uint8_t)value;
        break;
    case 2:
        *(uint16_t *)place = (uint16_t)value;
        break;
    case 4:
        *(uint32_t *)place = (uint32_t)value;
        break;
    default:
        *(uint64_t *)place = value;
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
    unsigned char *place;
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
    place = classes->scratch[number];
    for (uint64_t i = 0; i < count; i++) {
        const bt_field *element = bt_field_array_borrow_element_field_by_index_const(field, i);

        store(place + i * bytes, bytes, integer_of(element, member->is_signed));
    }
    classes->item.parts[number] = (struct ctf_part){place, (uint32_t)needed};
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

static void record_pack(struct ctf_item *item, const struct ctf_told_record *told, unsigned kind)
{
    item->of.record.origin = (struct varve_mirror_origin){
        .process = told->process, .ring = told->ring, .pid = told->pid, .tid = told->tid};
    item->of.record.ring_seq = told->ring_seq;
    item->of.record.record = (struct varve_record){
        .ticks = told->ticks,
        .addr = told->addr,
        .size = told->size,
        .requested = told->requested,
        .arg = told->arg,
        .id_stream = (told->id & UINT64_C(0xffffffffffff)) | (uint64_t)told->stream << 48,
        .dev_seq_kind_flags =
            varve_record_tag(told->dev_seq, (enum varve_kind)kind, told->flags & VARVE_FLAGS_STORED),
        .callsite = told->callsite,
        .pool = told->pool,
        .device = told->device,
        .cause = told->cause,
    };
}

static bool item_read(struct ctf_classes *classes, const struct event_class *class, const bt_field *payload)
{
    struct ctf_item *item = &classes->item;
    struct ctf_told_record told;
    unsigned texts;

    item->kind = class->spec->kind;
    if (item->kind == CTF_ITEM_RECORD) {
        memset(&told, 0, sizeof(told));
        if (payload != NULL && !fields_read(classes, class, payload, &told)) {
            return false;
        }
        record_pack(item, &told, class->spec->record_kind);
        return true;
    }
    texts = ctf_item_shape(item->kind)->texts;
    memset(&item->of, 0, ctf_item_shape(item->kind)->bytes);
    for (unsigned i = 0; i < CTF_PARTS; i++) {
        item->parts[i] = i < texts ? (struct ctf_part){"", 1} : (struct ctf_part){NULL, 0};
    }
    if (item->kind == CTF_ITEM_PROCESS) {
        item->of.process.rank = -1; /* without the field: no rank, not rank 0 */
    }
    if (payload != NULL && !fields_read(classes, class, payload, item)) {
        return false;
    }
    ctf_item_bind(item);
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
        case ROLE_FOREIGN:
            name = bt_event_class_get_name(class->key);
            ctf_counts_foreign(counts, name != NULL && name[0] != '\0' ? name : "?", class->seen);
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
