/* SPDX-License-Identifier: Apache-2.0 */
/** @file fake_device.h
 *
 * A device made of host memory. Its memory is a file in memory, mapped twice:
 * at `address`, which is what kvtransfer is given, without any permission, so
 * that each touch past the copier ends the test; and at `bytes`, where the
 * copier and the test reach it.
 *
 * A copy changes nothing until it ends, and then moves the bytes that are there
 * at that moment: a slot or a source that was used again too early shows as
 * wrong bytes. Until then the target of a copy to the host is garbage. Copies
 * end in any order, each after a number of questions that is drawn at random,
 * one of them fails if the test wants that, and all can be withheld.
 */
#ifndef BT_TESTS_UNIT_KVTRANSFER_FAKE_DEVICE_H
#define BT_TESTS_UNIT_KVTRANSFER_FAKE_DEVICE_H

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "kernels/copier.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

#define FAKE_TICKETS 64u

typedef struct fake_copy {
    bool under_way, fails;
    void *dst; /* as the copier may write and read it */
    const void *src;
    size_t n;
    uint32_t questions; /* more until it ends */
} fake_copy_t;

typedef struct fake_device {
    bt_copier_t copier;
    uint8_t *address; /* no permission */
    uint8_t *bytes;   /* the same, for the copier and the test */
    size_t n_bytes;
    uint64_t random;
    uint32_t max_questions; /* a copy ends at the 1st .. max-th */
    bool withheld;          /* no copy ends */
    bool refuses;           /* what fails does so at once */
    uint32_t fail_at;       /* the n-th copy begun; 0: never */
    uint32_t n_begun, n_ended, n_under_way, most_under_way;
    uint32_t n_to_host, n_to_device;
    uint64_t bytes_copied;
    uint32_t n_allocs;
    fake_copy_t copies[FAKE_TICKETS];
} fake_device_t;

static uint8_t *fake_reach(const fake_device_t *d, const void *device, size_t n)
{
    const size_t at = (size_t)((const uint8_t *)device - d->address);

    assert_true((at <= d->n_bytes) && (n <= d->n_bytes - at));
    return d->bytes + at;
}

static bt_status_t fake_host_alloc(void *user, size_t n, void **ptr_p)
{
    fake_device_t *d = user;
    void *ptr = bt_calloc_aligned(n, 1);

    if (ptr == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    d->n_allocs++;
    *ptr_p = ptr;
    return BT_OK;
}

static void fake_host_free(void *user, void *ptr)
{
    fake_device_t *d = user;

    assert_int_equal(d->n_under_way, 0);
    d->n_allocs--;
    bt_free(ptr);
}

static bt_status_t fake_begin(fake_device_t *d, void *dst, const void *src,
                              size_t n, uint32_t ticket)
{
    fake_copy_t *copy = &d->copies[ticket];
    const bool fails = ++d->n_begun == d->fail_at;

    assert_true(ticket < d->copier.n_tickets);
    assert_false(copy->under_way);
    assert_true(n > 0);
    if (fails && d->refuses) {
        return BT_ERR_DEVICE;
    }
    *copy = (fake_copy_t){
        .under_way = true,
        .fails = fails,
        .dst = dst,
        .src = src,
        .n = n,
        .questions = (uint32_t)draw_below(
            &d->random, d->max_questions == 0 ? 1 : d->max_questions)};
    d->n_under_way++;
    if (d->n_under_way > d->most_under_way) {
        d->most_under_way = d->n_under_way;
    }
    return BT_OK;
}

static bt_status_t fake_to_host(void *user, void *host, const void *device,
                                size_t n, uint32_t ticket)
{
    fake_device_t *d = user;

    memset(host, 0xdd, n);
    d->n_to_host++;
    return fake_begin(d, host, fake_reach(d, device, n), n, ticket);
}

static bt_status_t fake_to_device(void *user, void *device, const void *host,
                                  size_t n, uint32_t ticket)
{
    fake_device_t *d = user;

    d->n_to_device++;
    return fake_begin(d, fake_reach(d, device, n), host, n, ticket);
}

static bt_status_t fake_end(fake_device_t *d, fake_copy_t *copy)
{
    copy->under_way = false;
    d->n_under_way--;
    d->n_ended++;
    if (copy->fails) {
        return BT_ERR_DEVICE;
    }
    memcpy(copy->dst, copy->src, copy->n);
    d->bytes_copied += copy->n;
    return BT_OK;
}

static bt_status_t fake_query(void *user, uint32_t ticket)
{
    fake_device_t *d = user;
    fake_copy_t *copy = &d->copies[ticket];

    assert_true(copy->under_way);
    if (d->withheld || (copy->questions > 0)) {
        copy->questions -= (copy->questions > 0) ? 1 : 0;
        return BT_INPROGRESS;
    }
    return fake_end(d, copy);
}

static void fake_wait_all(void *user)
{
    fake_device_t *d = user;

    for (uint32_t i = 0; i < FAKE_TICKETS; i++) {
        if (d->copies[i].under_way) {
            (void)!fake_end(d, &d->copies[i]);
        }
    }
}

__attribute__((unused)) static void fake_open(fake_device_t *d, size_t n_bytes,
                                              uint64_t seed)
{
    const int fd = memfd_create("device", MFD_CLOEXEC);

    memset(d, 0, sizeof(*d));
    d->n_bytes = n_bytes;
    d->random = seed;
    d->max_questions = 4;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)n_bytes), 0);
    d->address = mmap(NULL, n_bytes, PROT_NONE, MAP_SHARED, fd, 0);
    d->bytes = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true((d->address != MAP_FAILED) && (d->bytes != MAP_FAILED));
    close(fd);
    d->copier = (bt_copier_t){.user = d,
                              .n_tickets = FAKE_TICKETS,
                              .host_alloc = fake_host_alloc,
                              .host_free = fake_host_free,
                              .to_host = fake_to_host,
                              .to_device = fake_to_device,
                              .query = fake_query,
                              .wait_all = fake_wait_all};
}

/** All that was begun ended, all that was allocated is freed. */
__attribute__((unused)) static void fake_close(fake_device_t *d)
{
    if (d->address == NULL) {
        return;
    }
    assert_int_equal(d->n_under_way, 0);
    assert_int_equal(d->n_allocs, 0);
    munmap(d->address, d->n_bytes);
    munmap(d->bytes, d->n_bytes);
    memset(d, 0, sizeof(*d));
}

#endif
