/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * What a test asks of a device, in words (device_play.c has all of them), as support/alloc/rig.h has it for the
 * allocator; and the device that such a play is for, walked after each word.
 */
#ifndef VARVE_TESTS_SUPPORT_CUDA_DEVICE_PLAY_H
#define VARVE_TESTS_SUPPORT_CUDA_DEVICE_PLAY_H

#include "support/cuda/device.h"

struct device_play;

/* One word, as a function sees it. What it returns is an error, which the word must have announced. */
struct device_step {
    struct device_play *play;
    struct varve_device *device;
    uint64_t at[6]; /* its arguments */
    unsigned count;
    uint64_t stream;
    uint64_t out; /* what it gives */
};
struct device_word {
    const char *name;
    int (*call)(struct device_step *step);
};

struct device_case {
    const char *what;
    const char *words;
    struct varve_sim_options sim;
    uint64_t limit; /* of a host device */
};

/* One of an array of them, with designated options behind the words. */
#define PLAY(what_, words_, ...)                        \
    {                                                   \
        .what = (what_), .words = (words_), __VA_ARGS__ \
    }

/* How a device is opened, and what is looked at when it has been closed. */
struct device_kind {
    const char *name;
    int (*open)(const struct device_case *one, struct varve_device **device_out);
    int (*check)(const struct varve_device *device, struct varve_message *message);
    void (*closing)(void); /* before and after the device closes; NULL: nothing */
    void (*closed)(void);
    const char *(*reason)(void);     /* for reason{…}; NULL: the device's */
    const struct device_word *words; /* of this kind alone, up to one without a name; NULL: none */
    uint64_t stream;                 /* one that the device knows, besides 0: s in plays; p is a page */
    /* ---- for device_rules.h ---- */
    bool maps_anywhere; /* mappings need not begin at units */
    bool has_bytes;     /* memory keeps what is written to it */
    /* of the random test; 0: what a device takes that is slow and maps units only */
    uint64_t piece_bytes, piece_max;
    size_t steps;
    /* of that of threads: holds a stream back for a moment; what went wrong for the calling thread; NULL: nothing */
    void (*hold)(struct varve_device *device, uint64_t stream);
    unsigned (*look_at_thread)(void);
};

struct device_play {
    const struct device_kind *kind;
    struct varve_device *device; /* NULL: none is open; for words that are about something else, none at all */
    const char *now;             /* the case that is played, for messages; NULL: none */
    uint64_t named[26];          /* values by their letters */
    struct varve_ipc_handle handles[16];
    int *error_out; /* where the first error goes that no word announces; NULL: it fails the test */
};

/*
 * Words, separated by blanks: VALUE_NAME=NAME:ARGUMENT:…@STREAM!ERROR or …?VALUE. A value is a sum of letters and
 * numbers: a+2u-100, of units of 2 MiB (u), K, M, G; hexadecimal ones begin with 0x, max is UINT64_MAX; 'alloc is
 * the number of a call that a sim device can fail, 'io that of an error.
 *
 *   a=alloc:4u@2       a segment of 4 units, for stream 2; its address is a from now on
 *   free:a:4u!missing  VARVE_ERROR_NOT_FOUND is what that gives, and an output stays as it was
 *   query:e?1          it gives 1
 *   reason{text}       text is a part of the device's reason; {} it has none
 */
void device_words(struct device_play *play, const char *words);
/* The same while another thread is in a call. */
void device_words_unchecked(struct device_play *play, const char *words);
/* Until one fails that is not to: its error, or 0. */
int device_words_until(struct device_play *play, const char *words);
void device_play_open(struct device_play *play, const struct device_kind *kind, const struct device_case *one);
void device_play_close(struct device_play *play);
void device_check(struct device_play *play);
bool device_is_readable(uint64_t addr);
/* Bytes in use, by what memory_info says. */
uint64_t device_used(struct device_play *play);

/* Setup and teardown of a test with a play, which closes what is open. */
int device_play_setup(void **state);
int device_play_teardown(void **state);
/* Each with a device of its own. */
void device_play_cases(struct device_play *play, const struct device_kind *kind, const struct device_case *cases,
                       size_t count);
#define TEST_DEVICE_PLAYS(name, kind, cases)                                        \
    TEST_WITH(name, device_play_setup, device_play_teardown)                        \
    {                                                                               \
        device_play_cases(*state, kind, cases, sizeof(cases) / sizeof((cases)[0])); \
    }
/* One with more than words in it: `play` is open. */
#define TEST_DEVICE(name, kind, ...)                                                           \
    static void name##_plays(struct device_play *play, const struct varve_device_ops *ops);    \
    TEST_WITH(name, device_play_setup, device_play_teardown)                                   \
    {                                                                                          \
        struct device_play *play = *state;                                                     \
        device_play_open(play, kind, &(const struct device_case){.what = #name, __VA_ARGS__}); \
        name##_plays(play, play->device != NULL ? play->device->ops : NULL);                   \
        if (play->now != NULL) {                                                               \
            device_play_close(play);                                                           \
        }                                                                                      \
    }                                                                                          \
    static void name##_plays(__attribute__((unused)) struct device_play *play,                 \
                             __attribute__((unused)) const struct varve_device_ops *ops)

/* Kinds without anything of their own: the sim device, and the host device with its words. */
extern const struct device_kind sim_kind, host_kind;

#endif
