/* SPDX-License-Identifier: Apache-2.0 */
/* Simulates the duration of a pass of another model on another machine. */
#include <errno.h>
#include <time.h>

#include "common/base/clock.h"
#include "inference/engine/engine_priv.h"

static void wait_until(uint64_t ns)
{
    const struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u),
                                   .tv_nsec = (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) ==
           EINTR) {
    }
}

void bt_engine_rehearse(const bt_engine_t *engine, uint32_t n_layers)
{
    const bt_engine_rehearsal_t *as = &engine->config.rehearsal;
    const bt_pass_t *pass = engine->pass;
    const uint64_t whole_ns =
        1000 * (as->pass_us + (uint64_t)as->row_us * pass->n_rows);
    uint64_t due_ns;

    if (whole_ns == 0) {
        return;
    }
    due_ns = pass->start_ns + whole_ns * n_layers / engine->n_layers;
    if (pass == &engine->whole) {
        due_ns += engine->inside_ns;
    }
    if (due_ns > bt_now_ns()) {
        wait_until(due_ns);
    }
}
