/* SPDX-License-Identifier: Apache-2.0 */
/* What the generated programs open with dlopen: it allocates in its constructor, its destructor and between.
 */
#include <stddef.h>

struct me;
void generated_malloc(struct me *me, unsigned at, size_t size);
void generated_free(struct me *me, unsigned at);
struct me *generated_current(void);
void library_work(struct me *me, unsigned at);

__attribute__((constructor)) static void begin(void)
{
    generated_malloc(generated_current(), 6, 60001);
}

__attribute__((destructor)) static void end(void)
{
    generated_free(generated_current(), 6);
}

void library_work(struct me *me, unsigned at)
{
    for (unsigned i = 0; i < 5; i++) {
        generated_malloc(me, at + i, 70 + at);
    }
}
