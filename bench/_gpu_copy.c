/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/_gpu_copy.h"

#include <stdio.h>
#include <string.h>

#include "bench/_half.h"
#include "common/base/clock.h"

#define TICKETS  16u /* each way */
#define SEED     7u
#define MAX_POOL (1u << 30)
#define WARM_UP  2u /* warm-up samples, not reported */

/* State of a pass over the pool. */
typedef struct work {
    bt_gpu_copy_t *copy;
    const uint8_t *from;
    uint8_t *slots;  /* staged */
    uint8_t *theirs; /* across; NULL: hashes alone */
    uint32_t record, n_records;
    uint64_t sum; /* sum of the hashes */
} work_t;

static void wait_for(const bt_gpu_copy_t *c, uint32_t ticket)
{
    bt_half_must(bt_copier_wait(&c->copier, ticket), "a copy");
}

static void begin_hash(const work_t *w, uint32_t i)
{
    const bt_gpu_copy_t *c = w->copy;
    const size_t at = (size_t)i * w->record;
    const uint32_t ticket = i % TICKETS;

    bt_half_must((w->theirs == NULL)
                     ? c->copier.hash(c->copier.user, w->from + at, w->record,
                                      SEED + i, ticket)
                     : c->copier.between(c->copier.user, w->theirs + at,
                                         w->from + at, w->record, SEED + i,
                                         ticket),
                 "a copy");
}

static void end_hash(work_t *w, uint32_t i)
{
    const bt_gpu_copy_t *c = w->copy;

    wait_for(c, i % TICKETS);
    w->sum += c->copier.hashed(c->copier.user, i % TICKETS);
}

static void hashes(work_t *w)
{
    w->sum = 0;
    for (uint32_t i = 0; i < w->n_records; i++) {
        if (i >= TICKETS) {
            end_hash(w, i - TICKETS);
        }
        begin_hash(w, i);
    }
    for (uint32_t i = (w->n_records < TICKETS) ? 0 : w->n_records - TICKETS;
         i < w->n_records; i++) {
        end_hash(w, i);
    }
}

/* Half of the slots are being copied to the host and half back. */
static void through_slots(work_t *w)
{
    const bt_gpu_copy_t *c = w->copy;
    const uint32_t behind = TICKETS / 2;

    for (uint32_t i = 0; i < w->n_records + behind; i++) {
        const uint32_t slot = i % TICKETS;

        if ((i >= TICKETS) && (i - TICKETS < w->n_records)) {
            wait_for(c, TICKETS + slot);
        }
        if (i < w->n_records) {
            bt_half_must(c->copier.to_host(c->copier.user,
                                           w->slots + (size_t)slot * w->record,
                                           w->from + (size_t)i * w->record,
                                           w->record, slot),
                         "a copy");
        }
        if (i >= behind) {
            const uint32_t k = i - behind;

            wait_for(c, k % TICKETS);
            bt_half_must(c->copier.to_device(
                             c->copier.user, c->pool + (size_t)k * w->record,
                             w->slots + (size_t)(k % TICKETS) * w->record,
                             w->record, TICKETS + k % TICKETS),
                         "a copy");
        }
    }
    c->copier.wait_all(c->copier.user);
}

/* Prints everything but the end of the line. */
static void measure(work_t *w, void (*run)(work_t *w), const char *samples)
{
    const uint32_t n = bt_half_number(samples, 1, 1000);

    printf("{\"seconds\": [");
    for (uint32_t i = 0; i < WARM_UP + n; i++) {
        const uint64_t start = bt_now_ns();

        run(w);
        if (i >= WARM_UP) {
            printf("%s%.9f", (i == WARM_UP) ? "" : ", ",
                   (double)(bt_now_ns() - start) * 1e-9);
        }
    }
    printf("]");
}

/* ---- commands ---- */

static work_t work_of(bt_gpu_copy_t *c, const char *record)
{
    work_t w = {.copy = c, .from = c->pool};

    if (c->pool == NULL) {
        bt_half_die(BT_OK, "a copy before a pool");
    }
    w.record = bt_half_number(record, 16, BT_COPIER_MAX_BYTES);
    w.n_records = c->bytes / w.record;
    return w;
}

static void set_pool(bt_gpu_copy_t *c, const char *const *words)
{
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    void *ptr = NULL;

    bt_gpu_copy_fini(c);
    c->bytes = bt_half_number(words[1], 16, MAX_POOL);
    bt_half_must(c->be->ops->copier_open(c->be, 2 * TICKETS, &c->copier),
                 "a copier");
    bt_half_must(c->be->ops->buffer_alloc(c->be, c->bytes, &ptr), "memory");
    c->pool = ptr;
    printf("{\"handle\": \"");
    if ((c->copier.share_name != NULL) &&
        (c->copier.share(c->copier.user, ptr, handle) == BT_OK)) {
        for (size_t i = 0; i < sizeof(handle); i++) {
            printf("%02x", handle[i]);
        }
    }
    printf("\"}\n");
}

static void run_across(bt_gpu_copy_t *c, const char *const *words)
{
    uint8_t handle[BT_COPIER_HANDLE_BYTES];
    work_t w = work_of(c, words[2]);
    void *theirs = NULL;
    uint64_t sent;

    for (size_t i = 0; i < sizeof(handle); i++) {
        unsigned byte;

        if (sscanf(words[1] + 2 * i, "%2x", &byte) != 1) {
            bt_half_die(BT_OK, "%s is no handle", words[1]);
        }
        handle[i] = (uint8_t)byte;
    }
    if (c->copier.open_shared(c->copier.user, handle, &theirs) != BT_OK) {
        bt_half_die(BT_OK, "the other's memory cannot be opened: %s",
                    c->copier.why_not(c->copier.user));
    }
    w.theirs = theirs;
    measure(&w, hashes, words[3]);
    sent = w.sum;
    /* Hash of the pool's current contents, as this device reads them. */
    w.from = theirs;
    w.theirs = NULL;
    hashes(&w);
    printf(", \"right\": %s}\n", (w.sum == sent) ? "true" : "false");
    c->copier.close_shared(c->copier.user, theirs);
}

static void run_checked(bt_gpu_copy_t *c, const char *const *words)
{
    work_t w = work_of(c, words[1]);

    measure(&w, hashes, words[2]);
    printf("}\n");
}

static void run_staged(bt_gpu_copy_t *c, const char *const *words)
{
    work_t w = work_of(c, words[1]);
    void *slots = NULL;

    bt_half_must(c->copier.host_alloc(c->copier.user,
                                      (size_t)TICKETS * w.record, &slots),
                 "pinned memory");
    w.slots = slots;
    measure(&w, through_slots, words[2]);
    printf("}\n");
    c->copier.host_free(c->copier.user, slots);
}

bool bt_gpu_copy_command(bt_gpu_copy_t *c, const char *const *words)
{
    static const struct {
        const char *name;
        void (*run)(bt_gpu_copy_t *c, const char *const *words);
    } commands[] = {{"pool", set_pool},
                    {"across", run_across},
                    {"checked", run_checked},
                    {"staged", run_staged}};

    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(words[0], commands[i].name) == 0) {
            commands[i].run(c, words);
            return true;
        }
    }
    return false;
}

void bt_gpu_copy_fini(bt_gpu_copy_t *c)
{
    if (c->copier.user != NULL) {
        c->be->ops->copier_close(&c->copier);
    }
    if (c->pool != NULL) {
        c->be->ops->buffer_free(c->be, c->pool);
    }
    c->pool = NULL;
}
