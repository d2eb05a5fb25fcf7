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
#include <sys/mman.h>

/*
 *   slot:   0 = empty                8 bits of the hash | number of an entry, from 1
 *   entry:  low half of the hash     32 more bits of it | number
 *
 * Entries lie one after the other in the order in which they came, and stay where they are. What is looked at in random
 * places are the slots: four bytes each, so that a search for what is not there, which most searches of a program that
 * begins are, mostly finds its slot in a cache. An entry is written first, then its slot with release, so whoever sees
 * the slot sees the entry. Growing publishes more slots and gives the pages of the old ones back; their addresses stay
 * mapped, so a reader still in there finds zeros, which is "not found", and its caller asks again under the lock.
 */

enum {
    TABLE_BITS_FIRST = 10,
    TABLE_BITS_MAX = TABLE_BITS_FIRST + CALLSITE_TABLE_SIZES - 1,
    ENTRY_BITS = 24,
    CHUNK_BITS = 16,
    FETCH_AHEAD = 8,
};

#define TABLE_BITS_MASK ((uintptr_t)4095) /* pages leave these bits of their address free */
#define CHUNK_ENTRIES ((size_t)1 << CHUNK_BITS)

struct callsite_table_entry {
    uint64_t low;
    uint32_t more;
    uint32_t number;
};

static_assert(CALLSITE_TABLE_CHUNKS << CHUNK_BITS == 1U << ENTRY_BITS, "a slot numbers all entries");

static size_t slots_bytes(unsigned bits)
{
    return sizeof(uint32_t) << bits;
}

static uint32_t *callsite_table_slots(uintptr_t tagged)
{
    return (uint32_t *)(tagged & ~TABLE_BITS_MASK);
}

static size_t slots_mask(uintptr_t tagged)
{
    return ((size_t)1 << (tagged & TABLE_BITS_MASK)) - 1;
}

static uint32_t callsite_table_tag(uint64_t low)
{
    return (uint32_t)(low >> ENTRY_BITS >> 8) & ~((1U << ENTRY_BITS) - 1);
}

static struct callsite_table_entry *entry_at(const struct callsite_table *table, uint32_t number)
{
    struct callsite_table_entry *chunk = __atomic_load_n(&table->chunks[(number - 1) >> CHUNK_BITS], __ATOMIC_RELAXED);
    return &chunk[(number - 1) & (CHUNK_ENTRIES - 1)];
}

uint32_t callsite_table_find(const struct callsite_table *table, struct stack_hash hash)
{
    const uintptr_t tagged = __atomic_load_n(&table->slots, __ATOMIC_ACQUIRE);
    const uint32_t *slots = callsite_table_slots(tagged);
    const size_t mask = slots_mask(tagged);
    const uint32_t number_mask = (1U << ENTRY_BITS) - 1, tag = callsite_table_tag(hash.low);
    if (tagged == 0) {
        return 0;
    }
    for (size_t i = hash.low & mask;; i = (i + 1) & mask) {
        const uint32_t slot = __atomic_load_n(&slots[i], __ATOMIC_ACQUIRE);
        if (slot == 0) {
            return 0;
        }
        if ((slot & ~number_mask) == tag) {
            const struct callsite_table_entry *entry = entry_at(table, slot & number_mask);
            if (entry->low == hash.low && entry->more == (uint32_t)(hash.high >> 32)) {
                return entry->number;
            }
        }
    }
}

/* The slot of an entry, where there is room. */
static void slot_put(uintptr_t tagged, uint64_t low, uint32_t entry)
{
    const size_t mask = slots_mask(tagged);
    uint32_t *slots = callsite_table_slots(tagged);
    size_t i = low & mask;
    while (__atomic_load_n(&slots[i], __ATOMIC_RELAXED) != 0) {
        i = (i + 1) & mask;
    }
    __atomic_store_n(&slots[i], callsite_table_tag(low) | entry, __ATOMIC_RELEASE);
}

static void slots_fill(const struct callsite_table *table, uintptr_t tagged)
{
    for (uint32_t entry = 1; entry <= table->count; entry++) {
        if (entry + FETCH_AHEAD <= table->count) {
            const uint64_t low = entry_at(table, entry + FETCH_AHEAD)->low;
            __builtin_prefetch(&callsite_table_slots(tagged)[low & slots_mask(tagged)], 1);
        }
        slot_put(tagged, entry_at(table, entry)->low, entry);
    }
}

static bool slots_reserve(struct callsite_table *table)
{
    const uintptr_t old = __atomic_load_n(&table->slots, __ATOMIC_RELAXED);
    const unsigned old_bits = (unsigned)(old & TABLE_BITS_MASK);
    const unsigned bits = old == 0 ? TABLE_BITS_FIRST : old_bits + 1;
    if (old != 0 && table->count < ((size_t)1 << old_bits) / 4 * 3) {
        return true;
    }
    void *memory = bits <= TABLE_BITS_MAX ? recorder_map_table(slots_bytes(bits)) : NULL;

    if (memory == NULL) {
        /* A crowded table still works; one free slot must stay, it ends every search. */
        return old != 0 && table->count + 1 < (size_t)1 << old_bits;
    }
    uintptr_t tagged = (uintptr_t)memory | bits;

    assert((tagged & ~TABLE_BITS_MASK) == (uintptr_t)memory);
    slots_fill(table, tagged);
    __atomic_store_n(&table->slots, tagged, __ATOMIC_RELEASE);
    if (old != 0) {
        recorder_sys_madvise(callsite_table_slots(old), slots_bytes(old_bits), MADV_DONTNEED);
        table->outgrown[old_bits - TABLE_BITS_FIRST] = old;
    }
    return true;
}

int callsite_table_reserve(struct callsite_table *table)
{
    const uint32_t chunk = table->count >> CHUNK_BITS;
    if (table->count + 1 >= 1U << ENTRY_BITS || !slots_reserve(table)) {
        return VARVE_ERROR_NO_MEMORY;
    }
    if (table->chunks[chunk] == NULL) {
        void *memory = recorder_map(CHUNK_ENTRIES * sizeof(struct callsite_table_entry));
        __atomic_store_n(&table->chunks[chunk], memory, __ATOMIC_RELAXED);
    }
    return table->chunks[chunk] != NULL ? VARVE_OK : VARVE_ERROR_NO_MEMORY;
}

void callsite_table_insert(struct callsite_table *table, struct stack_hash hash, uint32_t number)
{
    const uintptr_t tagged = __atomic_load_n(&table->slots, __ATOMIC_RELAXED);
    assert(tagged != 0);
    const uint32_t entry = ++table->count;
    *entry_at(table, entry) = (struct callsite_table_entry){hash.low, (uint32_t)(hash.high >> 32), number};
    slot_put(tagged, hash.low, entry);
}

static void slots_unmap(uintptr_t tagged)
{
    if (tagged != 0) {
        recorder_unmap(callsite_table_slots(tagged), slots_bytes((unsigned)(tagged & TABLE_BITS_MASK)));
    }
}

void callsite_table_reset(struct callsite_table *table)
{
    const uintptr_t slots = __atomic_exchange_n(&table->slots, 0, __ATOMIC_RELAXED);
    table->count = 0;
    slots_unmap(slots);
    for (unsigned i = 0; i < CALLSITE_TABLE_SIZES; i++) {
        slots_unmap(table->outgrown[i]);
        table->outgrown[i] = 0;
    }
    for (unsigned i = 0; i < CALLSITE_TABLE_CHUNKS && table->chunks[i] != NULL; i++) {
        recorder_unmap(table->chunks[i], CHUNK_ENTRIES * sizeof(struct callsite_table_entry));
        table->chunks[i] = NULL;
    }
}
