/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how many requests a second the router can place on workers, for
 * bench/router.py.
 *
 *     router-place WORKERS OPEN SECONDS
 *
 * Half of the workers prefill, half decode, spread in memory as the router's
 * are; OPEN requests are in flight, and with each new one the oldest ends. One
 * line of JSON. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/sched/sched_place.h"

#define SEATS     64u
#define N_BLOCKS  65536u
#define PROMPT    256u
#define BLOCKS    20u
#define APART     2048u /* bytes of the router's worker object */
#define ROUND     256u
#define MAX_COUNT 1000000u

typedef struct open_request {
    bt_sched_worker_t *prefill, *decode;
} open_request_t;

static bt_sched_worker_t *make_workers(bt_list_t *list, uint32_t n)
{
    char *memory = bt_half_zeros(n, APART);

    bt_list_init(list);
    for (uint32_t i = 0; i < n; i++) {
        void *at = memory + (size_t)i * APART;
        bt_sched_worker_t *w = at;

        *w = (bt_sched_worker_t){.id = i + 1,
                                 .roles = (i % 2 == 0) ? BT_SCHED_PREFILL
                                                       : BT_SCHED_DECODE,
                                 .max_seats = SEATS,
                                 .n_blocks = N_BLOCKS};
        bt_list_push_back(list, &w->link);
    }
    return (bt_sched_worker_t *)(void *)memory;
}

static void end(const open_request_t *r)
{
    if (r->prefill != NULL) {
        r->prefill->prefill_tokens -= PROMPT;
        r->prefill->seats--;
    }
    if (r->decode != NULL) {
        r->decode->seats--;
        r->decode->blocks -= BLOCKS;
    }
}

static void place(const bt_list_t *workers, uint64_t *n_taken_p,
                  open_request_t *r)
{
    const bt_sched_request_t request = {.n_tokens = PROMPT, .max_new = 64};
    bt_sched_placement_t placement;

    if (!bt_sched_place(workers, &request, &placement)) {
        bt_half_die(BT_OK, "a request was not placed");
    }
    bt_sched_take(&placement, n_taken_p);
    *r = (open_request_t){placement.prefill, placement.decode};
    if (r->prefill != NULL) {
        r->prefill->prefill_tokens += PROMPT;
        r->prefill->seats++;
    }
    if (r->decode != NULL) {
        r->decode->seats++;
        r->decode->blocks += BLOCKS;
    }
}

int main(int argc, char **argv)
{
    uint32_t n_workers, n_open;
    uint64_t n_taken = 0, n = 0, start_ns, end_ns;
    double seconds;
    char *rest;
    open_request_t *open_requests;
    bt_sched_worker_t *memory;
    bt_list_t workers;

    if ((argc != 4) || !((seconds = strtod(argv[3], &rest)) > 0) ||
        (*rest != '\0') || (seconds > 1e6)) {
        bt_half_die(BT_OK, "usage: WORKERS OPEN SECONDS");
    }
    n_workers = bt_half_number(argv[1], 2, MAX_COUNT);
    n_open = bt_half_number(argv[2], 1, MAX_COUNT);
    memory = make_workers(&workers, n_workers);
    open_requests = bt_half_zeros(n_open, sizeof(*open_requests));
    for (uint32_t i = 0; i < n_open; i++) {
        place(&workers, &n_taken, &open_requests[i]);
    }
    start_ns = bt_thread_cpu_ns();
    end_ns = start_ns + (uint64_t)(seconds * 1e9);
    do {
        for (uint32_t i = 0; i < ROUND; i++, n++) {
            open_request_t *oldest = &open_requests[n % n_open];

            end(oldest);
            place(&workers, &n_taken, oldest);
        }
    } while (bt_thread_cpu_ns() < end_ns);
    printf("{\"placements\": %" PRIu64 ", \"cpu_seconds\": %.6f}\n", n,
           (double)(bt_thread_cpu_ns() - start_ns) / 1e9);
    bt_free(open_requests);
    bt_free(memory);
    return 0;
}
