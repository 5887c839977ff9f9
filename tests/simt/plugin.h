/* SPDX-License-Identifier: Apache-2.0 */
/** @file plugin.h  baton_cuda_sim.so for a test: to be opened by its name, and
 *  to be asked (faults.h). */
#ifndef BT_TESTS_SIMT_PLUGIN_H
#define BT_TESTS_SIMT_PLUGIN_H

#include "tests/support/testsupport.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/simt/faults.h"

static bt_simt_fail_at_fn fail_at;
static bt_simt_state_fn state_of;

/** @param argc, argv  Of main(): the plugin's path is the one argument. */
static void plugin_open(int argc, char **argv)
{
    char folder[PATH_MAX];
    void *handle;

    assert_int_equal(argc, 2);
    handle = dlopen(argv[1], RTLD_NOW);
    assert_non_null(handle);
    fail_at = (bt_simt_fail_at_fn)dlsym(handle, "bt_simt_fail_at");
    state_of = (bt_simt_state_fn)dlsym(handle, "bt_simt_state");
    assert_true((fail_at != NULL) && (state_of != NULL));
    snprintf(folder, sizeof(folder), "%s", argv[1]);
    assert_int_equal(setenv("BATON_PLUGIN_DIR", dirname(folder), 1), 0);
}

#endif
