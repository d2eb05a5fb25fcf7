/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Notes about programs that are about to run, in the session's counts: the collector names those that it
 * records nothing of (collector/unrecorded_programs.c). Called by the hooks of the exec family, also in a vfork child:
 * async-signal-safe, and nothing outlives the call but the note.
 */
#include "trace/recorder/exec_look.h"
#include "trace/guest/confinement.h"
#include "trace/guest/guest_memory.h"
#include "trace/recorder/session.h"
#include "base/syscall.h"
#include "trace/format/session_format.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/*
 * Each exec is looked at by the process that does it (exec_look.c): a program that can't load the recorder is noted
 * with the reason, another one as awaited, and its recorder then notes that it was loaded. Of programs that run in a
 * new process (posix_spawn, system) only the reasons are noted: their pids are not known here.
 */

/* A relative path as an absolute one, its end if it is too long for the note. */
static void copy_path(char *target, size_t bytes, struct exec_scratch *scratch)
{
    const char *path = scratch->path;
    if (path[0] != '/' &&
        recorder_syscall(SYS_getcwd, (long)scratch->text, (long)sizeof(scratch->text) - 1, 0, 0, 0, 0) > 0) {
        size_t folder = strlen(scratch->text);
        if (strncmp(path, "./", 2) == 0) {
            path += 2;
        }
        recorder_format(scratch->text + folder, sizeof(scratch->text) - folder, "/%s", path);
        path = scratch->text;
    }
    size_t length = strlen(path);
    recorder_format(target, bytes, "%s", length < bytes ? path : path + length - bytes + 1);
}

static struct session_exec *slot_claim(struct session_counts *counts, uint32_t order)
{
    for (uint32_t i = 0; i < SESSION_EXECS; i++) {
        struct session_exec *slot = &counts->execs[(order + i) % SESSION_EXECS];
        uint32_t expected = EXEC_STATE_FREE;
        if (__atomic_load_n(&slot->state, __ATOMIC_RELAXED) == EXEC_STATE_FREE &&
            __atomic_compare_exchange_n(&slot->state, &expected, EXEC_STATE_WRITING, false, __ATOMIC_ACQUIRE,
                                        __ATOMIC_RELAXED)) {
            return slot;
        }
    }
    __atomic_fetch_add(&counts->execs_dropped, 1, __ATOMIC_RELAXED);
    return NULL;
}

static struct session_exec *note_begin(struct session_counts *counts, enum exec_kind kind)
{
    uint32_t order = __atomic_add_fetch(&counts->execs_noted, 1, __ATOMIC_RELAXED);
    struct session_exec *slot = slot_claim(counts, order);
    if (slot != NULL) {
        slot->kind = kind;
        slot->order = order;
        slot->of = 0;
        slot->reason = EXEC_REASON_NONE;
        slot->is_awaited = 0;
        slot->path[0] = '\0';
        process_identity_read(&slot->process);
    }
    return slot;
}

static void note_end(struct session_counts *counts, struct session_exec *slot)
{
    __atomic_store_n(&slot->state, EXEC_STATE_WRITTEN, __ATOMIC_RELEASE);
    __atomic_fetch_add(&counts->execs_written, 1, __ATOMIC_RELEASE);
}

/* NULL: there is no session, or nobody reads notes any more, or nothing can be looked at here. */
static struct session_counts *open_counts(void)
{
    const struct session_control *session = recorder_session();
    return session != NULL && !recorder_is_confined() &&
                   __atomic_load_n(&session->state, __ATOMIC_ACQUIRE) == SESSION_STATE_RECORDING
               ? recorder_session_counts()
               : NULL;
}

static void exec_note_note(struct exec_noted *noted, const struct exec_finding *finding, struct session_counts *counts,
                           struct exec_scratch *scratch)
{
    struct session_exec *slot = note_begin(counts, EXEC_KIND_BEGUN);
    if (slot != NULL) {
        slot->reason = (uint32_t)finding->reason;
        slot->is_awaited = finding->reason == EXEC_REASON_NONE;
        copy_path(slot->path, sizeof(slot->path), scratch);
        noted->order = slot->order;
        note_end(counts, slot);
    }
}

void exec_note_begin(struct exec_noted *noted, const struct exec_call *call)
{
    noted->order = 0;
    noted->must_clean = false;
    const bool is_ours = recorder_variable(call->envp, SESSION_UNRECORDED) != NULL; /* the program has not run it */
    struct exec_scratch *scratch = !is_ours && !recorder_is_confined() ? recorder_map(sizeof(*scratch)) : NULL;
    if (scratch == NULL) {
        return;
    }
    struct session_counts *counts = open_counts();
    if (counts != NULL || exec_environment_recorder(call->envp, scratch->text, sizeof(scratch->text))) {
        struct exec_finding finding = exec_look(call, scratch);
        noted->must_clean = finding.must_clean;
        if (counts != NULL && finding.will_run && (finding.reason != EXEC_REASON_NONE || call->is_in_process)) {
            exec_note_note(noted, &finding, counts, scratch);
        }
    }
    recorder_unmap(scratch, sizeof(*scratch));
}

void exec_note_failed(const struct exec_noted *noted)
{
    struct session_counts *counts = noted->order != 0 ? open_counts() : NULL;
    struct session_exec *slot = counts != NULL ? note_begin(counts, EXEC_KIND_FAILED) : NULL;
    if (slot != NULL) {
        slot->of = noted->order;
        note_end(counts, slot);
    }
}

void exec_note_loaded(void)
{
    struct session_counts *counts = open_counts();
    struct session_exec *slot = counts != NULL ? note_begin(counts, EXEC_KIND_LOADED) : NULL;
    if (slot != NULL) {
        note_end(counts, slot);
    }
}
