/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of the provider `varve` and their fields, by name: those of records come from VARVE_EVENT_LIST,
 * as in the provider itself, those of all else are the members of the structures in trace/sink.h. Asked once for
 * each event class of a trace.
 */
#include "analysis/import/ctf/fields.h"

#include <string.h>

/* clang-format off */
#define NUMBER(type, path, field) {field, offsetof(type, path), sizeof(((type *)0)->path), CTF_FIELD_INTEGER}
#define TEXT(part, field) {field, part, 1, CTF_FIELD_TEXT}
#define ARRAY(part, type, field) {field, part, sizeof(type), CTF_FIELD_ARRAY}
#define FIELDS_END {NULL, 0, 0, CTF_FIELD_INTEGER}

static const struct ctf_field_spec record_fields[] = {
#define TOLD(member) NUMBER(struct ctf_told_record, member, #member)
    TOLD(process), TOLD(ring), TOLD(ring_seq), TOLD(ticks), TOLD(pid), TOLD(tid), TOLD(device), TOLD(dev_seq),
    TOLD(stream), TOLD(pool), TOLD(id), TOLD(addr), TOLD(size), TOLD(requested), TOLD(arg), TOLD(cause),
    TOLD(callsite), TOLD(flags), FIELDS_END,
#undef TOLD
};

#define TOLD(structure, member) NUMBER(struct ctf_item, of.structure.member, #member)
#define ORIGIN(structure) \
    NUMBER(struct ctf_item, of.structure.origin.process, "process"), \
    NUMBER(struct ctf_item, of.structure.origin.ring, "ring"), \
    NUMBER(struct ctf_item, of.structure.origin.pid, "pid"), \
    NUMBER(struct ctf_item, of.structure.origin.tid, "tid")

static const struct ctf_field_spec process_fields[] = {
    TOLD(process, trace_id), TOLD(process, process), TOLD(process, parent), TOLD(process, pid),
    TOLD(process, parent_pid), TOLD(process, rank), TOLD(process, clock_kind), TOLD(process, start_ticks),
    TOLD(process, start_ticks_proc), TEXT(0, "executable"), TEXT(1, "command_line"), FIELDS_END,
};

static const struct ctf_field_spec process_end_fields[] = {
    TOLD(process_end, process), TOLD(process_end, pid), TOLD(process_end, end), TEXT(0, "exec_path"),
    FIELDS_END,
};

static const struct ctf_field_spec thread_fields[] = {
    ORIGIN(thread), TOLD(thread, created_ticks), TEXT(0, "name"), FIELDS_END,
};

static const struct ctf_field_spec thread_end_fields[] = {
    ORIGIN(thread_end), TOLD(thread_end, emitted), TOLD(thread_end, lost), TOLD(thread_end, lost_bytes),
    FIELDS_END,
};

static const struct ctf_field_spec clock_fields[] = {
    TOLD(clock, trace_id), TOLD(clock, ticks), TOLD(clock, mono_ns), TOLD(clock, real_ns), FIELDS_END,
};

static const struct ctf_field_spec module_fields[] = {
    TOLD(module, process), TOLD(module, pid), TOLD(module, base), TOLD(module, end), TOLD(module, bias),
    TOLD(module, number), TEXT(0, "path"), ARRAY(1, uint8_t, "build_id"), FIELDS_END,
};

static const struct ctf_field_spec module_gone_fields[] = {
    TOLD(module_gone, process), TOLD(module_gone, pid), TOLD(module_gone, number), FIELDS_END,
};

static const struct ctf_field_spec code_fields[] = {
    TOLD(code, process), TOLD(code, pid), TOLD(code, code), TOLD(code, first_line), TEXT(0, "function"),
    TEXT(1, "file"), FIELDS_END,
};

static const struct ctf_field_spec callsite_fields[] = {
    TOLD(callsite, process), TOLD(callsite, pid), TOLD(callsite, callsite), ARRAY(0, uint64_t, "native"),
    ARRAY(1, uint32_t, "codes"), ARRAY(2, uint32_t, "lines"), FIELDS_END,
};

static const struct ctf_field_spec meta_text_fields[] = {
    TOLD(meta, trace_id), TEXT(0, "key"), TEXT(1, "value"), FIELDS_END,
};

static const struct ctf_field_spec meta_integer_fields[] = {
    TOLD(meta, trace_id), TEXT(0, "key"), TOLD(meta, value), FIELDS_END,
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

const struct ctf_event_spec *ctf_event_spec(const char *name)
{
    for (size_t i = 0; i < sizeof(event_specs) / sizeof(event_specs[0]); i++) {
        if (strcmp(name, event_specs[i].name) == 0) {
            return &event_specs[i];
        }
    }
    return NULL;
}
