/* SPDX-License-Identifier: Apache-2.0 */
#include "storage/remat/twister.h"

#define SHIFT 397
#define UPPER UINT32_C(0x80000000)
#define TWIST UINT32_C(0x9908b0df)

static void init(struct twister *twister, uint32_t seed)
{
    twister->state[0] = seed;
    for (uint32_t i = 1; i < TWISTER_WORDS; i++) {
        uint32_t before = twister->state[i - 1];
        twister->state[i] = UINT32_C(1812433253) * (before ^ before >> 30) + i;
    }
    twister->next = TWISTER_WORDS;
}

void twister_seed(struct twister *twister, uint64_t seed)
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t length = key[1] != 0 ? 2 : 1;
    uint32_t *state = twister->state;
    init(twister, UINT32_C(19650218));
    uint32_t i = 1, j = 0;
    for (uint32_t k = TWISTER_WORDS; k > 0; k--) {
        state[i] = (state[i] ^ (state[i - 1] ^ state[i - 1] >> 30) * UINT32_C(1664525)) + key[j] + j;
        j = (j + 1) % length;
        if (++i == TWISTER_WORDS) {
            state[0] = state[TWISTER_WORDS - 1];
            i = 1;
        }
    }
    for (uint32_t k = TWISTER_WORDS - 1; k > 0; k--) {
        state[i] = (state[i] ^ (state[i - 1] ^ state[i - 1] >> 30) * UINT32_C(1566083941)) - i;
        if (++i == TWISTER_WORDS) {
            state[0] = state[TWISTER_WORDS - 1];
            i = 1;
        }
    }
    state[0] = UPPER;
}

static void twister_refill(struct twister *twister)
{
    uint32_t *state = twister->state;
    for (uint32_t i = 0; i < TWISTER_WORDS; i++) {
        uint32_t y = (state[i] & UPPER) | (state[(i + 1) % TWISTER_WORDS] & ~UPPER);
        state[i] = state[(i + SHIFT) % TWISTER_WORDS] ^ y >> 1 ^ ((y & 1) != 0 ? TWIST : 0);
    }
    twister->next = 0;
}

static uint32_t twister_draw(struct twister *twister)
{
    if (twister->next >= TWISTER_WORDS) {
        twister_refill(twister);
    }
    uint32_t y = twister->state[twister->next++];
    y ^= y >> 11;
    y ^= y << 7 & UINT32_C(0x9d2c5680);
    y ^= y << 15 & UINT32_C(0xefc60000);
    return y ^ y >> 18;
}

uint32_t twister_below(struct twister *twister, uint32_t limit)
{
    int bits = 32 - __builtin_clz(limit);
    uint32_t value;
    do {
        value = twister_draw(twister) >> (32 - bits);
    } while (value >= limit);
    return value;
}
