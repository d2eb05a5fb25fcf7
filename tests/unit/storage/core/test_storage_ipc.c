/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storages of a pool in another process (support/storage), through the host device; what has no block is refused.
 * Costs: 1 s
 */
#include "support/storage/ipc_rules.h"

TEST(test_what_is_no_block)
{
    struct varve_storage *storage;
    struct varve_storage_ipc ipc = {.bytes = 8};
    rule_ok(varve_storage_empty(NULL, VARVE_DTYPE_U8, 0, NULL, &storage, &rule_message));
    assert_int_equal(varve_storage_ipc_export(storage, &ipc, &rule_message), VARVE_ERROR_INVALID);
    assert_int_equal(varve_storage_ipc_open(varve_memory_host(), &ipc, &storage, &rule_message), VARVE_ERROR_INVALID);
    rule_release(storage);
}

static const struct CMUnitTest rules[] = {
    IPC_RULES(pool_host),
    IPC_RULES(pool_apart),
};

TEST_CASES(rules)

int main(int argc, char **argv)
{
    int status = ipc_part(argc, argv);
    return status >= 0 ? status : test_file_run("test_storage_ipc");
}
