/* SPDX-License-Identifier: Apache-2.0 */
/* C only: shared by C tests */
/*
 * Storages of a pool that another process opens: the bytes are the same ones, a view's geometry comes along, and what
 * is no such storage is refused. The program's main starts with ipc_part, which is all that the other process does.
 */
#ifndef VARVE_TESTS_SUPPORT_STORAGE_IPC_RULES_H
#define VARVE_TESTS_SUPPORT_STORAGE_IPC_RULES_H

#include "support/other_process.h"
#include "support/storage/storage_rules.h"

struct ipc_offer {
    char kind[32];
    struct varve_storage_ipc storage;
};

/* Elements of i64 get another sign. */
static inline int ipc_negate(struct varve_storage *storage)
{
    struct varve_storage *host;
    int error = varve_storage_clone(storage, &(struct varve_storage_options){.memory = NULL}, &host, NULL);
    if (error != VARVE_OK) {
        return error;
    }
    for (int64_t i = 0; i < varve_storage_count(host); i++) {
        ((int64_t *)varve_storage_data(host))[i] *= -1;
    }
    error = varve_storage_copy(storage, host, NULL);
    varve_storage_release(host, NULL);
    return error;
}

/* The exit status says what went wrong. */
static inline int ipc_negate_offered(void)
{
    struct varve_message message = {""};
    struct ipc_offer offer;
    struct pool pool;
    if (!read_all(0, &offer, sizeof(offer)) || pool_kind_find(offer.kind) == NULL ||
        pool_open(&pool, pool_kind_find(offer.kind), &message) != VARVE_OK) {
        return 1;
    }
    struct varve_storage *storage;
    if (varve_storage_ipc_open(pool.memory, &offer.storage, &storage, &message) != VARVE_OK) {
        fprintf(stderr, "%s\n", message.text);
        return 2;
    }
    if (ipc_negate(storage) != VARVE_OK || varve_storage_release(storage, NULL) != VARVE_OK) {
        return 3;
    }
    return pool_close(&pool, &message) == VARVE_OK ? 0 : 4;
}

/// The exit status of the other process; -1: this is the test itself.
static inline int ipc_part(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "negate") == 0 ? ipc_negate_offered() : -1;
}

static inline void rule_a_view_in_another_process(void **state)
{
    const struct pool *pool = *state;
    const int64_t shape[] = {6};
    const float answer[] = {5, -5, 5, -5, 5, -5};
    struct varve_storage_options options = {.memory = pool->memory};
    struct other other = other_start("negate");
    struct ipc_offer offer;
    memset(&offer, 0, sizeof(offer));
    snprintf(offer.kind, sizeof(offer.kind), "%s", pool->kind->name);
    struct varve_storage *first, *storage, *view;
    rule_ok(varve_storage_empty(&options, VARVE_DTYPE_U8, 1, shape, &first, &rule_message));
    options.alignment = 4096; /* the data does not begin where its block does */
    rule_ok(varve_storage_full(&options, VARVE_DTYPE_I64, 1, shape,
                               (struct varve_scalar){.kind = VARVE_SCALAR_INTEGER, .integer = 5}, &storage,
                               &rule_message));
    rule_ok(varve_storage_slice(storage, 0, 1, 6, 2, &view, &rule_message));
    rule_ok(varve_storage_ipc_export(view, &offer.storage, &rule_message));
    assert_true(say(other.to, &offer, sizeof(offer)));
    assert_int_equal(other_end(&other), 0);
    rule_expect(storage, 6, answer);
    rule_release(view);
    offer.storage.geometry.shape[0] = 100;
    assert_int_equal(varve_storage_ipc_open(pool->memory, &offer.storage, &view, &rule_message), VARVE_ERROR_INVALID);
    rule_release(storage);
    rule_release(first);
}

#define IPC_RULES(kind) POOL_CASE(rule_a_view_in_another_process, kind)

#endif
