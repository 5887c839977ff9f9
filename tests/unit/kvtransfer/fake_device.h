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
 *
 * Devices that share (fake_shares()) open each other's memory; each reaches
 * that of another one while it has it open.
 */
#ifndef BT_TESTS_UNIT_KVTRANSFER_FAKE_DEVICE_H
#define BT_TESTS_UNIT_KVTRANSFER_FAKE_DEVICE_H

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "kernels/copier.h"
#include "kernels/device_hash.h"
#include "tests/support/draw.h"
#include "tests/support/testsupport.h"

#define FAKE_TICKETS 65u
#define FAKE_OPENS   4u /* of others' memory at a time */

typedef struct fake_copy {
    bool under_way, fails;
    void *dst; /* as the copier may write and read it */
    const void *src;
    size_t n;
    uint32_t questions; /* more until it ends */
    bool hashes;
    uint64_t seed, hash;
} fake_copy_t;

typedef struct fake_device fake_device_t;

/* As a handle has it. */
typedef struct fake_handle {
    fake_device_t *device;
    uint64_t life;
} fake_handle_t;

struct fake_device {
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
    /* Sharing. */
    uint64_t life; /* of whoever opened it in that one */
    const char *refuses_to_share, *refuses_to_open; /* why */
    /* Sees what a copy across has brought, and (checks) what is about to be
     * hashed where it lies; NULL: nobody does. */
    void (*see_copied)(void *user, uint8_t *bytes, size_t n);
    void (*see_checked)(void *user, uint8_t *bytes, size_t n);
    void *see_user;
    uint32_t n_between, n_hashes;
    fake_device_t *opened[FAKE_OPENS];
    uint32_t n_opened, n_openers; /* others' here, others there */
    fake_copy_t copies[FAKE_TICKETS];
};

static bool fake_has(const fake_device_t *d, const void *device, size_t n)
{
    const uint8_t *p = device;

    return (p >= d->address) && (p <= d->address + d->n_bytes) &&
           (n <= (size_t)(d->address + d->n_bytes - p));
}

static uint8_t *fake_reach(const fake_device_t *d, const void *device, size_t n)
{
    const fake_device_t *of = d;

    for (uint32_t i = 0; !fake_has(of, device, n); i++) {
        assert_true(i < FAKE_OPENS);
        of = (d->opened[i] == NULL) ? d : d->opened[i];
    }
    return of->bytes + ((const uint8_t *)device - of->address);
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
    if (copy->hashes && (copy->dst == NULL) && (d->see_checked != NULL)) {
        d->see_checked(d->see_user, (uint8_t *)(uintptr_t)copy->src, copy->n);
    }
    if (copy->hashes) {
        copy->hash = bt_device_hash(copy->src, copy->n, copy->seed);
    }
    if (copy->dst != NULL) {
        memcpy(copy->dst, copy->src, copy->n);
        d->bytes_copied += copy->n;
    }
    if (copy->hashes && (copy->dst != NULL) && (d->see_copied != NULL)) {
        d->see_copied(d->see_user, copy->dst, copy->n);
    }
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

/* ---- sharing ---- */

static bt_status_t fake_share(void *user, void *buffer,
                              uint8_t handle[BT_COPIER_HANDLE_BYTES])
{
    fake_device_t *d = user;
    const fake_handle_t made = {.device = d, .life = d->life};

    assert_ptr_equal(buffer, d->address);
    if (d->refuses_to_share != NULL) {
        return BT_ERR_UNSUPPORTED;
    }
    memset(handle, 0, BT_COPIER_HANDLE_BYTES);
    memcpy(handle, &made, sizeof(made));
    return BT_OK;
}

static bt_status_t
fake_open_shared(void *user, const uint8_t handle[BT_COPIER_HANDLE_BYTES],
                 void **buffer_p)
{
    fake_device_t *d = user;
    fake_handle_t of;
    uint32_t i = 0;

    memcpy(&of, handle, sizeof(of));
    if ((d->refuses_to_open != NULL) || (of.device == d) ||
        (of.life != of.device->life)) {
        return BT_ERR_UNSUPPORTED;
    }
    while (d->opened[i] != NULL) {
        i++;
        assert_true(i < FAKE_OPENS);
    }
    d->opened[i] = of.device;
    d->n_opened++;
    of.device->n_openers++;
    *buffer_p = of.device->address;
    return BT_OK;
}

static void fake_close_shared(void *user, void *buffer)
{
    fake_device_t *d = user;
    uint32_t i = 0;

    while ((d->opened[i] == NULL) || (d->opened[i]->address != buffer)) {
        i++;
        assert_true(i < FAKE_OPENS);
    }
    for (uint32_t k = 0; k < FAKE_TICKETS; k++) {
        assert_false(d->copies[k].under_way && (d->copies[k].dst != NULL) &&
                     ((uint8_t *)d->copies[k].dst >= d->opened[i]->bytes) &&
                     ((uint8_t *)d->copies[k].dst <
                      d->opened[i]->bytes + d->opened[i]->n_bytes));
    }
    d->opened[i]->n_openers--;
    d->opened[i] = NULL;
    d->n_opened--;
}

static const char *fake_why_not(void *user)
{
    const fake_device_t *d = user;

    return (d->refuses_to_share != NULL)  ? d->refuses_to_share
           : (d->refuses_to_open != NULL) ? d->refuses_to_open
                                          : "it is gone";
}

static bt_status_t fake_between(void *user, void *to, const void *from,
                                size_t n, uint64_t seed, uint32_t ticket)
{
    fake_device_t *d = user;
    bt_status_t status;

    assert_true(n <= BT_COPIER_MAX_BYTES);
    d->n_between += to != NULL;
    d->n_hashes += to == NULL;
    status = fake_begin(d, (to == NULL) ? NULL : fake_reach(d, to, n),
                        fake_reach(d, from, n), n, ticket);
    if (status == BT_OK) {
        d->copies[ticket].hashes = true;
        d->copies[ticket].seed = seed;
    }
    return status;
}

static bt_status_t fake_hash(void *user, const void *device, size_t n,
                             uint64_t seed, uint32_t ticket)
{
    return fake_between(user, NULL, device, n, seed, ticket);
}

static uint64_t fake_hashed(void *user, uint32_t ticket)
{
    const fake_device_t *d = user;

    assert_true(d->copies[ticket].hashes && !d->copies[ticket].under_way);
    return d->copies[ticket].hash;
}

/** Before it is used. */
__attribute__((unused)) static void fake_shares(fake_device_t *d)
{
    static uint64_t lives;

    d->life = ++lives;
    d->copier.share_name = "fake_ipc";
    d->copier.share = fake_share;
    d->copier.open_shared = fake_open_shared;
    d->copier.close_shared = fake_close_shared;
    d->copier.why_not = fake_why_not;
    d->copier.between = fake_between;
    d->copier.hash = fake_hash;
    d->copier.hashed = fake_hashed;
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
    assert_int_equal(d->n_opened, 0);
    assert_int_equal(d->n_openers, 0);
    munmap(d->address, d->n_bytes);
    munmap(d->bytes, d->n_bytes);
    memset(d, 0, sizeof(*d));
}

#endif
