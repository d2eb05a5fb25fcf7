/* SPDX-License-Identifier: Apache-2.0 */
/* What lib_bypass opens in its turn: it lies in a folder of its own, which lib_bypass' search path names. */
#include <stdlib.h>

void *lib_next_make(size_t bytes);

void *lib_next_make(size_t bytes)
{
    return malloc(bytes);
}
