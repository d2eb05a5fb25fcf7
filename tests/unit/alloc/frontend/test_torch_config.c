/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The environment of libvarve-torch.so: PyTorch's variables in PyTorch's order, ours beside them, and values
 * that make no sense, which are an error and never a default.
 * Costs: 1 s
 */
#include "alloc/frontend/registry.h"
#include "alloc/frontend/torch_requests.h"
#include "alloc/frontend/torch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = {"VARVE_TORCH_DEVICE", "VARVE_TORCH_LIMIT", "VARVE_TORCH_POLICY",
                                    "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"};

static int clear(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
    return 0;
}

static void read_well(struct frontend_config *setup)
{
    struct varve_message message = {""};
    if (frontend_config_read("VARVE_TORCH", NULL, setup, &message) != VARVE_OK) {
        fail_msg("%s", message.text);
    }
}

TEST_WITH(test_defaults, clear, NULL)
{
    struct frontend_config setup;
    read_well(&setup);
    assert_int_equal(setup.kind, FRONTEND_DEVICE_CUDA);
    assert_string_equal(setup.policy, "pytorch");
    assert_int_equal(setup.limit_bytes, 0);
    assert_true(setup.alloc.max_split_size == VARVE_ALLOC_UNLIMITED);
}

TEST_WITH(test_all_set, clear, NULL)
{
    setenv("VARVE_TORCH_DEVICE", "host", 1);
    setenv("VARVE_TORCH_LIMIT", "4096", 1);
    setenv("VARVE_TORCH_POLICY", "first-fit", 1);
    setenv("PYTORCH_ALLOC_CONF", "max_split_size_mb:30", 1);
    struct frontend_config setup;
    read_well(&setup);
    assert_int_equal(setup.kind, FRONTEND_DEVICE_HOST);
    assert_string_equal(setup.policy, "first-fit");
    assert_int_equal(setup.limit_bytes, 4096);
    assert_int_equal(setup.alloc.max_split_size, UINT64_C(30) << 20);
    setenv("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True", 1);
    read_well(&setup);
    assert_true(setup.alloc.expandable_segments);
    assert_true(setup.alloc.max_split_size == VARVE_ALLOC_UNLIMITED);
    setenv("VARVE_TORCH_DEVICE", "", 1);
    read_well(&setup);
    assert_int_equal(setup.kind, FRONTEND_DEVICE_CUDA);
}

static void refuse(const char *name, const char *value, const char *reason)
{
    struct varve_message message = {""};
    clear(NULL);
    setenv(name, value, 1);
    struct frontend_config setup;
    assert_int_not_equal(frontend_config_read("VARVE_TORCH", NULL, &setup, &message), VARVE_OK);
    if (strstr(message.text, name) == NULL || strstr(message.text, reason) == NULL) {
        fail_msg("of %s=%s: %s", name, value, message.text);
    }
}

TEST_WITH(test_nonsense, clear, NULL)
{
    refuse("VARVE_TORCH_DEVICE", "gpu", "'gpu' is no device");
    refuse("VARVE_TORCH_LIMIT", "-1", "no number of bytes");
    refuse("VARVE_TORCH_LIMIT", "12x", "no number of bytes");
    refuse("VARVE_TORCH_POLICY", "a-name-that-is-longer-than-any-policy-has", "no policy");
    refuse("PYTORCH_CUDA_ALLOC_CONF", "max_split:1", "max_split");
    refuse("PYTORCH_ALLOC_CONF", "expandable_segments:maybe", "expandable_segments");
}

/* Every request fails in the words of the first; once is enough. */
TEST_WITH(test_first_request_says_so, clear, NULL)
{
    struct varve_message message = {""};
    setenv("VARVE_TORCH_DEVICE", "sim", 1);
    setenv("VARVE_TORCH_POLICY", "no-such-policy", 1);
    uint64_t addr;
    assert_int_equal(torch_allocate(512, 0, 0, &addr, &message), VARVE_ERROR_NOT_FOUND);
    assert_non_null(strstr(message.text, "no-such-policy"));
    assert_int_equal(torch_allocate(512, 0, 0, &addr, &message), VARVE_ERROR_NOT_FOUND);
    assert_false(varve_torch_is_open(0));
}

TEST_FILE(NULL, clear)
