/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layouts are those of linux/rseq.h and linux/ptrace.h, which the C library's headers do not have everywhere. A kernel
 * that does not say where a thread has registered itself is older than the C libraries that register any (5.13). Called
 * by inject.c.
 */
#include "trace/collector/programs/thread_look.h"

#include "trace/collector/programs/attach_registers.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>

#define GET_RSEQ_CONFIGURATION 0x420f

struct configuration { /* struct ptrace_rseq_configuration */
    uint64_t area;
    uint32_t area_bytes;
    uint32_t signature; /* before each place that an abort leads to */
    uint32_t flags;
    uint32_t pad;
};

#define SEQUENCE_AT 8U /* in struct rseq: the address of a struct rseq_cs, or 0 */

struct sequence { /* struct rseq_cs */
    uint32_t version, flags;
    uint64_t start, bytes, abort_at;
};

static_assert(sizeof(struct sequence) == 32 && sizeof(struct configuration) == 24, "the kernel's");

static bool read_words(int32_t tid, uint64_t at, void *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += sizeof(long)) {
        errno = 0;
        const long word = ptrace(PTRACE_PEEKDATA, tid, (void *)(uintptr_t)(at + i), NULL);
        if (errno != 0) {
            return false;
        }
        memcpy((char *)bytes + i, &word, sizeof(word));
    }
    return true;
}

void sequence_abort(int32_t tid, struct registers *registers)
{
    struct configuration configuration = {0};
    struct sequence sequence = {0};
    uint64_t sequence_at = 0;
    struct {
        uint32_t before, first; /* instructions */
    } code;
    if (ptrace((enum __ptrace_request)GET_RSEQ_CONFIGURATION, tid, (void *)sizeof(configuration), &configuration) <=
            0 ||
        configuration.area == 0 ||
        !read_words(tid, configuration.area + SEQUENCE_AT, &sequence_at, sizeof(sequence_at)) || sequence_at == 0 ||
        !read_words(tid, sequence_at, &sequence, sizeof(sequence)) || sequence.version != 0 ||
        registers_pc(registers) - sequence.start >= sequence.bytes ||
        !read_words(tid, sequence.abort_at - sizeof(code.before), &code, sizeof(code)) ||
        code.before != configuration.signature) {
        return;
    }
    registers_pc_set(registers, sequence.abort_at);
}
