/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop of malloc and free that after its first rounds goes on with the statics of the recorder's library read-only:
 * what a known stack costs is the same for any number of threads only if none of them is written. Says "known", and
 * that there is no recorder by status 3.
 */
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Two records a pair; a ring gets longer at each power of two, which is no loop's doing. */
#define PAIRS_FIRST 2500U
#define PAIRS_WITHOUT 500U

struct range {
    uintptr_t start, end;
};

/* What stays writable of the recorder's library once its relocations are done. */
static int visit(struct dl_phdr_info *info, size_t bytes, void *argument)
{
    struct range *range = argument;
    const uintptr_t page = (uintptr_t)getpagesize();
    (void)bytes;
    if (strstr(info->dlpi_name, "libvarve_preload.so") == NULL) {
        return 0;
    }
    uintptr_t relocated = 0;
    for (unsigned i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        const uintptr_t start = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_LOAD && (header->p_flags & PF_W) != 0) {
            *range = (struct range){start / page * page, (start + header->p_memsz + page - 1) / page * page};
        } else if (header->p_type == PT_GNU_RELRO) {
            relocated = (start + header->p_memsz) / page * page;
        }
    }
    range->start = relocated > range->start ? relocated : range->start;
    return 1;
}

static __attribute__((noinline)) void take(unsigned pairs)
{
    for (volatile unsigned i = 0; i < pairs; i++) {
        free(malloc(64));
    }
}

static void protect(const struct range *range, int protection)
{
    if (mprotect((void *)range->start, range->end - range->start, protection) != 0) {
        perror("mprotect");
        exit(1);
    }
}

int main(void)
{
    struct range statics = {0, 0};
    if (dl_iterate_phdr(visit, &statics) == 0 || statics.start >= statics.end) {
        return 3;
    }
    for (volatile unsigned round = 0; round < 2; round++) { /* one call, one stack */
        if (round == 1) {
            protect(&statics, PROT_READ);
        }
        take(round == 0 ? PAIRS_FIRST : PAIRS_WITHOUT);
    }
    protect(&statics, PROT_READ | PROT_WRITE);
    puts("known");
    return 0;
}
