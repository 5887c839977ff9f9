/* SPDX-License-Identifier: Apache-2.0 */
/* Pools in device memory. The device here is a file in memory: mapped once
 * where "device copies" reach it, and once without any permission, which is
 * the address that kvtransfer is given. So each read or write past the copies
 * ends the test. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/log.h"
#include "kvtransfer/kvt.h"
#include "tests/support/kvt_mem.h"
#include "tests/support/testsupport.h"
#include "tests/unit/kvtransfer/fds.h"

#define POOL_BYTES (4u << 20)
#define SENDER     11u
#define RECEIVER   22u
#define MAX_ROUNDS 10000

typedef struct device {
    uint8_t *address;     /* no permission */
    uint8_t *bytes;       /* the same, for the copies and the test */
    int n_calls, fail_at; /* 0: never */
} device_t;

static void device_open(device_t *d)
{
    const int fd = memfd_create("device", MFD_CLOEXEC);

    memset(d, 0, sizeof(*d));
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, POOL_BYTES), 0);
    d->address = mmap(NULL, POOL_BYTES, PROT_NONE, MAP_SHARED, fd, 0);
    d->bytes =
        mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true((d->address != MAP_FAILED) && (d->bytes != MAP_FAILED));
    close(fd);
}

static void device_close(device_t *d)
{
    munmap(d->address, POOL_BYTES);
    munmap(d->bytes, POOL_BYTES);
}

static uint8_t *reach(device_t *d, const void *device, size_t bytes)
{
    const size_t at = (size_t)((const uint8_t *)device - d->address);

    assert_true((at <= POOL_BYTES) && (bytes <= POOL_BYTES - at));
    return d->bytes + at;
}

static bt_status_t device_read(void *user, void *host, const void *device,
                               size_t bytes)
{
    device_t *d = user;

    if (++d->n_calls == d->fail_at) {
        return BT_ERR_DEVICE;
    }
    memcpy(host, reach(d, device, bytes), bytes);
    return BT_OK;
}

static bt_status_t device_write(void *user, void *device, const void *host,
                                size_t bytes)
{
    device_t *d = user;

    if (++d->n_calls == d->fail_at) {
        return BT_ERR_DEVICE;
    }
    memcpy(reach(d, device, bytes), host, bytes);
    return BT_OK;
}

/** @a device: NULL = a pool in host memory */
static bt_kvt_config_t config_of(const bt_kvt_transport_t *transport,
                                 bt_kvt_mem_net_t *net, uint64_t instance,
                                 device_t *device)
{
    bt_kvt_config_t config = {.transport = transport,
                              .path = BT_KVT_PATH_AUTO,
                              .pool_bytes = POOL_BYTES,
                              .instance = instance,
                              .keepalive_ms = 100,
                              .dead_ms = 1000,
                              .quarantine_ms = 1000,
                              .transport_arg = net};

    if (device != NULL) {
        config.memory = BT_KVT_MEMORY_DEVICE;
        config.device = (bt_kvt_device_t){.pool = device->address,
                                          .read = device_read,
                                          .write = device_write,
                                          .user = device};
    }
    return config;
}

typedef struct outcome {
    int done, failed, closed, xfer_done;
    bt_status_t region_status, xfer_status;
} outcome_t;

static void take(outcome_t *o, const bt_kvt_event_t *event)
{
    switch (event->type) {
    case BT_KVT_REGION_DONE:
    case BT_KVT_REGION_FAILED:
        o->done += event->type == BT_KVT_REGION_DONE;
        o->failed += event->type == BT_KVT_REGION_FAILED;
        o->region_status = event->status;
        bt_kvt_region_close(event->region);
        break;
    case BT_KVT_REGION_CLOSED:
        o->closed++;
        break;
    case BT_KVT_XFER_DONE:
        o->xfer_done++;
        o->xfer_status = event->status;
        bt_kvt_release(event->xfer);
        break;
    case BT_KVT_PEER_UP:
        break;
    default:
        fail_msg("event %d", (int)event->type);
    }
}

/** Send 3 MiB from @a from (NULL: host memory) into @a to. */
static outcome_t transfer(device_t *from, device_t *to)
{
    static uint8_t blob[BT_KVT_MAX_EXPORT];
    const bt_kvt_extent_t extents[] = {{.offset = 0, .bytes = 1u << 20},
                                       {.offset = 2u << 20, .bytes = 2u << 20}};
    uint8_t desc[BT_KVT_DESC_BYTES(2)];
    bt_kvt_mem_net_t *net = NULL;
    bt_kvt_t *kvts[2] = {NULL, NULL};
    bt_kvt_region_t *region = NULL;
    bt_kvt_peer_t *peer = NULL;
    bt_kvt_xfer_t *xfer = NULL;
    outcome_t o = {0};
    bt_kvt_config_t config;
    bt_kvt_event_t event;
    uint8_t *source;
    size_t bytes = 0;

    assert_int_equal(bt_kvt_mem_net_create(&net), BT_OK);
    config = config_of(&bt_kvt_transport_mem, net, SENDER, from);
    assert_int_equal(bt_kvt_open(&config, &kvts[0]), BT_OK);
    config = config_of(&bt_kvt_transport_mem, net, RECEIVER, to);
    assert_int_equal(bt_kvt_open(&config, &kvts[1]), BT_OK);
    source = bt_kvt_pool(kvts[0]);
    if (from != NULL) {
        assert_ptr_equal(source, from->address);
    }
    for (size_t i = 0; i < POOL_BYTES; i++) {
        ((from == NULL) ? source : from->bytes)[i] =
            (uint8_t)(i * 7 + (i >> 9));
    }
    assert_int_equal(bt_kvt_export(kvts[1], blob, sizeof(blob), &bytes), BT_OK);
    assert_int_equal(bt_kvt_import(kvts[0], blob, bytes, NULL, &peer), BT_OK);
    assert_string_equal(bt_kvt_peer_path(peer), "network");
    assert_int_equal(bt_kvt_region_open(kvts[1], 1, 1, SENDER, extents, 2, NULL,
                                        desc, sizeof(desc), &bytes, &region),
                     BT_OK);
    assert_int_equal(bt_kvt_prep(peer, desc, bytes, NULL, &xfer), BT_OK);
    assert_int_equal(bt_kvt_post(xfer, source, 0, 3u << 20), BT_OK);
    assert_int_equal(bt_kvt_finish(xfer, NULL, 0), BT_OK);
    for (uint64_t round = 1; !o.closed || !o.xfer_done; round++) {
        assert_true(round < MAX_ROUNDS);
        for (size_t i = 0; i < 2; i++) {
            (void)bt_kvt_progress(kvts[i], round, POOL_BYTES);
            while (bt_kvt_poll(kvts[i], &event)) {
                take(&o, &event);
            }
        }
    }
    if (o.done > 0) {
        const uint8_t *got = (to == NULL) ? bt_kvt_pool(kvts[1]) : to->bytes;
        const uint8_t *sent = (from == NULL) ? source : from->bytes;

        assert_memory_equal(got, sent, 1u << 20);
        assert_memory_equal(got + (2u << 20), sent + (1u << 20), 2u << 20);
    }
    assert_int_equal(o.done + o.failed, 1);
    assert_int_equal(o.closed, 1);
    assert_int_equal(o.xfer_done, 1);
    bt_kvt_close(kvts[0]);
    bt_kvt_close(kvts[1]);
    bt_kvt_mem_net_destroy(net);
    return o;
}

static void cpu_never_touches_a_device_pool(void **state)
{
    device_t a, b;
    outcome_t o;

    (void)state;
    for (int kinds = 1; kinds < 4; kinds++) {
        device_open(&a);
        device_open(&b);
        o = transfer(((kinds & 1) != 0) ? &a : NULL,
                     ((kinds & 2) != 0) ? &b : NULL);
        assert_int_equal(o.done, 1);
        assert_int_equal(o.xfer_status, BT_OK);
        assert_int_equal(a.n_calls > 0, (kinds & 1) != 0);
        assert_int_equal(b.n_calls > 0, (kinds & 2) != 0);
        device_close(&a);
        device_close(&b);
    }
}

static void failed_copy_at_the_receiver_fails_the_region(void **state)
{
    device_t d;
    outcome_t o;

    (void)state;
    /* 3 records: 3 writes, 3 reads for the checksums. */
    for (int nth = 1; nth <= 6; nth++) {
        device_open(&d);
        d.fail_at = nth;
        o = transfer(NULL, &d);
        assert_int_equal(o.failed, 1);
        assert_int_equal(o.region_status, BT_ERR_DEVICE);
        assert_int_equal(o.xfer_status, BT_ERR_DEVICE);
        device_close(&d);
    }
}

static void failed_copy_at_the_sender_ends_the_transfer(void **state)
{
    device_t d;
    outcome_t o;

    (void)state;
    for (int nth = 1; nth <= 5; nth += 2) { /* reads for the checksums */
        device_open(&d);
        d.fail_at = nth;
        o = transfer(&d, NULL);
        assert_int_equal(o.xfer_status, BT_ERR_DEVICE);
        assert_int_equal(o.region_status, BT_ERR_CANCELED);
        device_close(&d);
    }
}

static void impossible_device_options_are_refused(void **state)
{
    device_t d;
    bt_kvt_config_t good, config;
    bt_kvt_t *kvt = NULL;

    (void)state;
    device_open(&d);
    good = config_of(&bt_kvt_transport_ucx, NULL, 1, &d);
    config = good;
    config.device.pool = NULL;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.device.read = NULL;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.device.write = NULL;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    config = good;
    config.memory = (bt_kvt_memory_t)(BT_KVT_MEMORY_DEVICE + 1);
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_INVALID_PARAM);
    bt_test_expect_log_lines(1);
    config = good;
    config.path = BT_KVT_PATH_SHM;
    assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_UNSUPPORTED);
    assert_null(kvt);
    assert_int_equal(d.n_calls, 0);
    device_close(&d);
}

/* Whether this UCX has no support of CUDA or has it: what it is given here is
 * no memory of such a device. */
static void memory_unknown_to_ucx_is_refused(void **state)
{
    bt_kvt_config_t config;
    bt_kvt_t *kvt = NULL;
    unsigned fds = 0;
    device_t d;

    (void)state;
    device_open(&d);
    config = config_of(&bt_kvt_transport_ucx, NULL, 1, &d);
    bt_test_expect_log_lines(4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(bt_kvt_open(&config, &kvt), BT_ERR_UNSUPPORTED);
        assert_null(kvt);
        if (i == 0) {
            fds = n_open_fds(); /* UCX keeps a few of its own */
        }
        assert_int_equal(n_open_fds(), fds);
    }
    assert_int_equal(d.n_calls, 0);
    device_close(&d);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(cpu_never_touches_a_device_pool),
        BT_TEST(failed_copy_at_the_receiver_fails_the_region),
        BT_TEST(failed_copy_at_the_sender_ends_the_transfer),
        BT_TEST(impossible_device_options_are_refused),
        BT_TEST(memory_unknown_to_ucx_is_refused),
    };

    bt_log_init("test_kvt_device", BT_LOG_LEVEL_WARN);
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
