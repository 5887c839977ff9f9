/* SPDX-License-Identifier: Apache-2.0 */
/* A device's checksum of its own bytes, and the copies that make one, against
 * the reference (kernels/device_hash.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/device_hash.h"
#include "tests/kernels/kcheck.h"

#define GUARD     64u
#define ROOM      (BT_COPIER_MAX_BYTES + 4 * GUARD)
#define TICKET    1u
#define N_TICKETS 2u

typedef struct device {
    bt_backend_t *be;
    bt_copier_t copier;
    void *from, *to;
    uint8_t *host, *before, *after; /* what is there; ROOM each */
} device_t;

static void must(bt_status_t status, const char *what)
{
    if (status != BT_OK) {
        fprintf(stderr, "kcheck: %s: %s\n", what, bt_status_str(status));
        exit(2);
    }
}

static void fill(uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)kc_random();
    }
}

static void bring(const device_t *d, void *to, const uint8_t *bytes)
{
    must(d->be->ops->copy_in(d->be, to, bytes, ROOM), "copy_in");
    must(d->be->ops->sync(d->be), "copy_in");
}

/* So many bytes from GUARD + from_at to GUARD + to_at. */
static void check_range(const device_t *d, size_t n, size_t from_at,
                        size_t to_at)
{
    const uint64_t seed = kc_random();
    const uint64_t want = bt_device_hash(d->host + GUARD + from_at, n, seed);
    const char *name = d->be->caps->name;
    const uint8_t *from = (const uint8_t *)d->from + GUARD + from_at;
    uint8_t *to = (uint8_t *)d->to + GUARD + to_at;

    must(d->copier.hash(d->copier.user, from, n, seed, TICKET), "hash");
    must(bt_copier_wait(&d->copier, TICKET), "hash");
    kc_expect(d->copier.hashed(d->copier.user, TICKET) == want,
              "hash of %zu bytes at %zu on %s", n, from_at, name);

    bring(d, d->to, d->before);
    must(d->copier.between(d->copier.user, to, from, n, seed, TICKET),
         "between");
    must(bt_copier_wait(&d->copier, TICKET), "between");
    kc_expect(d->copier.hashed(d->copier.user, TICKET) == want,
              "hash of a copy of %zu bytes from %zu to %zu on %s", n, from_at,
              to_at, name);
    memcpy(d->after, d->before, ROOM);
    memcpy(d->after + GUARD + to_at, d->host + GUARD + from_at, n);
    must(d->be->ops->copy_out(d->be, d->before, d->to, ROOM), "copy_out");
    kc_expect(memcmp(d->before, d->after, ROOM) == 0,
              "a copy of %zu bytes from %zu to %zu on %s", n, from_at, to_at,
              name);
}

static void check_device(bt_backend_t *be)
{
    static const size_t lengths[] = {1,     3,     4,      7,      8,
                                     12,    16,    20,     4096,   32768,
                                     32784, 65535, 131072, 300001, 1u << 20};
    device_t d = {.be = be};

    must(be->ops->copier_open(be, N_TICKETS, &d.copier), "copier_open");
    if (d.copier.share_name == NULL) {
        printf("kcheck: skipped: hash: %s shares no memory\n", be->caps->name);
        be->ops->copier_close(&d.copier);
        return;
    }
    d.host = malloc(3 * (size_t)ROOM);
    if (d.host == NULL) {
        must(BT_ERR_NO_MEMORY, "memory");
    }
    d.before = d.host + ROOM;
    d.after = d.before + ROOM;
    must(be->ops->buffer_alloc(be, ROOM, &d.from), "memory of the back end");
    must(be->ops->buffer_alloc(be, ROOM, &d.to), "memory of the back end");
    fill(d.host, ROOM);
    fill(d.before, ROOM);
    bring(&d, d.from, d.host);
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        check_range(&d, lengths[i], 0, 0);
        check_range(&d, lengths[i], 4 * (size_t)kc_below(16),
                    4 * (size_t)kc_below(16));
    }
    be->ops->buffer_free(be, d.to);
    be->ops->buffer_free(be, d.from);
    be->ops->copier_close(&d.copier);
    free(d.host);
}

/* Two that differ in a byte, or in the order of two words, or in what is behind
 * the last byte; and one by hand: word 0 is 0, the seed 0, so that what is
 * mixed is g. */
static void check_reference(void)
{
    uint8_t bytes[64];
    uint8_t other[64];
    const uint64_t zero = 0;
    uint64_t hash;

    kc_expect(bt_device_hash(&zero, 8, 0) == 0xe220a8397b1dcdafu,
              "the first number of SplitMix64 is another one");
    fill(bytes, sizeof(bytes));
    hash = bt_device_hash(bytes, sizeof(bytes), 7);
    for (size_t i = 0; i < sizeof(bytes); i++) {
        memcpy(other, bytes, sizeof(bytes));
        other[i] ^= (uint8_t)(1u << kc_below(8));
        kc_expect(bt_device_hash(other, sizeof(other), 7) != hash,
                  "byte %zu changes nothing", i);
    }
    memcpy(other, bytes, sizeof(bytes));
    memcpy(other + 8, bytes + 16, 8);
    memcpy(other + 16, bytes + 8, 8);
    kc_expect(bt_device_hash(other, sizeof(other), 7) != hash,
              "an order changes nothing");
    kc_expect(bt_device_hash(bytes, sizeof(bytes), 8) != hash,
              "a seed changes nothing");
}

void kc_test_hash(void)
{
    check_reference();
    for (uint32_t i = 0; i < kc_n_backends; i++) {
        if (kc_backends[i].own != NULL) {
            check_device(kc_backends[i].own);
        }
    }
}
