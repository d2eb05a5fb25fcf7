/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash to 32-bit number: an open-addressed table that many threads read without a lock, from malloc hooks and
 * signal handlers, while one writer adds to it. Keys are hashes of 96 bits, compared whole: two stacks out of
 * a billion (10^9) share one with probability 10^-11.
 * Called by callsite_here.c.
 */
#include "trace/stacks/callsite_writer.h"
#include "trace/guest/guest_memory.h"
#include "trace/guest/stack_hash.h"
#include "base/error.h"
#include "base/syscall.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

/*
 *   entry:  word[0] = low half of the hash, 0 = empty       word[1] = 32 more bits of it | number
 *
 * An entry is written once: word[1] first, then word[0] with release, so whoever sees the key sees the
 * number. Growing publishes a larger copy and gives the pages of the old one back; its addresses stay mapped,
 * so a reader still in there finds zeros, which is "not found", and its caller asks again under the lock.
 */

enum { TABLE_BITS_FIRST = 10, TABLE_BITS_MAX = TABLE_BITS_FIRST + CALLSITE_TABLE_SIZES - 1 };

#define TABLE_BITS_MASK ((uintptr_t)4095) /* pages leave these bits of their address free */

struct table_entry {
    uint64_t word[2];
};

static size_t callsite_table_bytes(unsigned bits)
{
    return sizeof(struct table_entry) << bits;
}

static struct table_entry *table_entries(uintptr_t tagged)
{
    return (struct table_entry *)(tagged & ~TABLE_BITS_MASK);
}

static uint32_t entry_check_bits(struct stack_hash hash)
{
    return (uint32_t)(hash.high >> 32);
}

uint32_t callsite_table_find(const struct callsite_table *table, struct stack_hash hash)
{
    const uintptr_t tagged = __atomic_load_n(&table->entries, __ATOMIC_ACQUIRE);
    const unsigned bits = (unsigned)(tagged & TABLE_BITS_MASK);
    const struct table_entry *entries = table_entries(tagged);
    const size_t mask = ((size_t)1 << bits) - 1;
    if (tagged == 0) {
        return 0;
    }
    for (size_t i = hash.low & mask;; i = (i + 1) & mask) {
        uint64_t key = __atomic_load_n(&entries[i].word[0], __ATOMIC_ACQUIRE);
        if (key == 0) {
            return 0;
        }
        if (key == hash.low) {
            uint64_t rest = __atomic_load_n(&entries[i].word[1], __ATOMIC_RELAXED);
            if ((uint32_t)(rest >> 32) == entry_check_bits(hash)) {
                return (uint32_t)rest;
            }
        }
    }
}

/* Into a table with room. */
static void entry_put(uintptr_t tagged, uint64_t key, uint64_t rest)
{
    const size_t mask = ((size_t)1 << (tagged & TABLE_BITS_MASK)) - 1;
    struct table_entry *entries = table_entries(tagged);
    size_t i = key & mask;
    while (__atomic_load_n(&entries[i].word[0], __ATOMIC_RELAXED) != 0) {
        i = (i + 1) & mask;
    }
    __atomic_store_n(&entries[i].word[1], rest, __ATOMIC_RELAXED);
    __atomic_store_n(&entries[i].word[0], key, __ATOMIC_RELEASE);
}

int callsite_table_reserve(struct callsite_table *table)
{
    const uintptr_t old = __atomic_load_n(&table->entries, __ATOMIC_RELAXED);
    const unsigned old_bits = (unsigned)(old & TABLE_BITS_MASK);
    const unsigned bits = old == 0 ? TABLE_BITS_FIRST : old_bits + 1;
    if (old != 0 && table->count < ((size_t)1 << old_bits) / 4 * 3) {
        return VARVE_OK;
    }
    void *memory = bits <= TABLE_BITS_MAX ? recorder_map_table(callsite_table_bytes(bits)) : NULL;

    if (memory == NULL) {
        /* A crowded table still works; one free entry must stay, it ends every search. */
        return old != 0 && table->count + 1 < (size_t)1 << old_bits ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
    }
    uintptr_t tagged = (uintptr_t)memory | bits;

    assert((tagged & ~TABLE_BITS_MASK) == (uintptr_t)memory);
    for (size_t i = 0; old != 0 && i < (size_t)1 << old_bits; i++) {
        const struct table_entry *entry = &table_entries(old)[i];
        uint64_t key = __atomic_load_n(&entry->word[0], __ATOMIC_RELAXED);
        if (key != 0) {
            entry_put(tagged, key, __atomic_load_n(&entry->word[1], __ATOMIC_RELAXED));
        }
    }
    __atomic_store_n(&table->entries, tagged, __ATOMIC_RELEASE);
    if (old != 0) {
        recorder_sys_madvise(table_entries(old), callsite_table_bytes(old_bits), MADV_DONTNEED);
        table->outgrown[old_bits - TABLE_BITS_FIRST] = old;
    }
    return VARVE_OK;
}

void callsite_table_insert(struct callsite_table *table, struct stack_hash hash, uint32_t number)
{
    const uintptr_t tagged = __atomic_load_n(&table->entries, __ATOMIC_RELAXED);
    assert(tagged != 0 && hash.low != 0);
    entry_put(tagged, hash.low, (uint64_t)entry_check_bits(hash) << 32 | number);
    table->count++;
}

static void entries_unmap(uintptr_t tagged)
{
    if (tagged != 0) {
        recorder_unmap(table_entries(tagged), callsite_table_bytes((unsigned)(tagged & TABLE_BITS_MASK)));
    }
}

void callsite_table_reset(struct callsite_table *table)
{
    const struct callsite_table old = *table;
    __atomic_store_n(&table->entries, 0, __ATOMIC_RELAXED);
    table->count = 0;
    memset(table->outgrown, 0, sizeof(table->outgrown));
    entries_unmap(old.entries);
    for (unsigned i = 0; i < CALLSITE_TABLE_SIZES; i++) {
        entries_unmap(old.outgrown[i]);
    }
}
