/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that was asked to end (pthread_cancel) but allocates first: malloc and free are no cancellation
 * points, so all pairs are made, and the thread ends after them. errno stays what it was.
 *
 * usage: cancelled PAIRS
 */
#include "workload.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

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
        char *memory = malloc(1234);
        memory[0] = 1;
        free(memory);
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
    pthread_t thread;
    if (pipe(ready) != 0 || pthread_create(&thread, NULL, allocate, NULL) != 0) {
        return 1;
    }
    pthread_cancel(thread);
    if (write(ready[1], "", 1) != 1) {
        return 1;
    }
    pthread_join(thread, &result);
    printf("{\"pairs\":%ld,\"cancelled\":%s,\"errno_changed\":%s}\n", done,
           result == PTHREAD_CANCELED ? "true" : "false", changed_errno ? "true" : "false");
    return 0;
}
