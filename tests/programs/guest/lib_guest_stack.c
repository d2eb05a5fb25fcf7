/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For Python programs: how much of the caller's stack one malloc takes, where all below was painted before.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define PAINT 0xa5
#define PAINTED_BYTES 65536
#define RED_ZONE_BYTES 128

size_t lib_guest_stack_used(void);

/* Filled in by the loader: the call binds no symbol, which takes stack of its own. */
static void *(*volatile call_malloc)(size_t) = malloc;
static void (*volatile call_free)(void *) = free;

static __attribute__((noinline)) void paint(volatile unsigned char *to)
{
    volatile unsigned char *from = to - PAINTED_BYTES;

    /* below the frame of this function and what it may keep there */
    to = (volatile unsigned char *)__builtin_frame_address(0) - 2 * RED_ZONE_BYTES;
    while (from < to) {
        *from++ = PAINT;
    }
}

size_t lib_guest_stack_used(void)
{
    volatile unsigned char *top = __builtin_frame_address(0);
    volatile unsigned char *at = top - PAINTED_BYTES;
    paint(top);
    call_free(call_malloc(100));
    while (*at == PAINT) {
        at++;
    }
    return (size_t)(top - at);
}
