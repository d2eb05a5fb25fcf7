/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that was asked to end (pthread_cancel) but allocates first: malloc and free are no cancellation
 * points, so all pairs are made, and the thread ends after them. errno stays what it was.
 *
 * usage: cancelled PAIRS
 */
#include "workload.h"

#include <errno.h>

static int ready[2]; /* a pipe: reading from it is a cancellation point, so it is written before */
static long pairs;
static volatile long done;
static volatile int changed_errno;

static void *allocate(void *unused)
{
    (void)unused;
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    while (read(ready[0], &before, 1) != 1) {
    }
    pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before); /* the request is pending from here on */
    errno = 77;
    for (long i = 0; i < pairs; i++) {
        free(take_block(1234));
        done = i + 1;
    }
    changed_errno = errno != 77;
    pthread_testcancel();
    return NULL;
}

int main(int argc, char **argv)
{
    void *result = NULL;
    pairs = argc > 1 ? strtol(argv[1], NULL, 10) : 1000;
    if (pipe(ready) != 0) {
        return 1;
    }
    pthread_t thread = start_thread(allocate, NULL);
    pthread_cancel(thread);
    if (write(ready[1], "", 1) != 1) {
        return 1;
    }
    pthread_join(thread, &result);
    printf("{\"pairs\":%ld,\"cancelled\":%s,\"errno_changed\":%s}\n", done,
           result == PTHREAD_CANCELED ? "true" : "false", changed_errno ? "true" : "false");
    return 0;
}
