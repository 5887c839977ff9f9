/* SPDX-License-Identifier: Apache-2.0 */
/* Large pages for the pool, where this system has them (else: that nothing
 * breaks). What a mapping consists of is read from /proc/self/smaps. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "kvtransfer/kvt.h"
#include "kvtransfer/kvt_pages.h"
#include "tests/support/testsupport.h"

#define PAGE       BT_KVT_PAGE_BYTES
#define POOL_BYTES (80 * PAGE + 12345)

/* KiB of a field of the mapping that begins at @a base. */
static uint64_t kib_of(const void *base, const char *field)
{
    FILE *smaps = fopen("/proc/self/smaps", "r");
    bool here = false;
    uint64_t kib = 0;
    char line[512];

    assert_non_null(smaps);
    while (fgets(line, sizeof(line), smaps) != NULL) {
        uint64_t from;
        uint64_t to;

        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " ", &from, &to) == 2) {
            here = from == (uintptr_t)base;
        } else if (here && (strncmp(line, field, strlen(field)) == 0)) {
            assert_int_equal(sscanf(line + strlen(field), ": %" SCNu64, &kib),
                             1);
        }
    }
    fclose(smaps);
    return kib;
}

/* Shared memory of its own, as UCX makes it. */
static uint8_t *shared_map(size_t bytes)
{
    const int fd = memfd_create("pool", MFD_CLOEXEC);
    void *area = bt_kvt_pages_reserve(bytes);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    assert_non_null(area);
    assert_int_equal((uintptr_t)area % PAGE, 0);
    assert_ptr_equal(mmap(area, bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED, fd, 0),
                     area);
    close(fd);
    return area;
}

/* Does this kernel give shared memory large pages when it is asked? */
static bool system_has_them(void)
{
    uint8_t *area = shared_map(PAGE);
    bool given;

    area[0] = 1;
    given = madvise(area, PAGE, 25 /* MADV_COLLAPSE */) == 0;
    munmap(area, PAGE);
    return given;
}

/* ...and private memory? */
static bool system_has_private_ones(void)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    char line[128] = "[never]";
    bool given;

    given = (file != NULL) && (fgets(line, sizeof(line), file) != NULL) &&
            (strstr(line, "[never]") == NULL);
    if (file != NULL) {
        fclose(file);
    }
    return given;
}

static void
reserved_addresses_are_aligned_and_no_more_than_asked_for(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 3 * PAGE; bytes += PAGE / 3) {
        const size_t page = (size_t)sysconf(_SC_PAGESIZE);
        const size_t whole = (bytes + page - 1) / page * page;
        uint8_t *area = bt_kvt_pages_reserve(bytes);
        unsigned char there;

        assert_non_null(area);
        assert_int_equal((uintptr_t)area % PAGE, 0);
        assert_int_equal(mincore(area + whole - page, page, &there), 0);
        assert_int_equal(munmap(area, bytes), 0);
        assert_int_equal(mincore(area, page, &there), -1);
    }
}

static void large_pages_start_at_the_front_and_keep_the_bytes(void **state)
{
    uint8_t *base = shared_map(POOL_BYTES);
    bt_kvt_pages_t pages = bt_kvt_pages_of(base, POOL_BYTES);
    const bool has = system_has_them();

    (void)state;
    assert_int_equal(pages.n, 80);
    memset(base + 100, 0x5a, 3 * PAGE);
    bt_kvt_pages_ready(&pages, PAGE + 1); /* and some more */
    assert_int_equal(pages.n_asked, has ? 34 : 0);
    bt_kvt_pages_ready(&pages, 34 * PAGE); /* is ready */
    assert_int_equal(pages.n_asked, has ? 34 : 0);
    bt_kvt_pages_ready(&pages, POOL_BYTES); /* the last bytes are no page */
    assert_int_equal(pages.n_asked, has ? 80 : 0);
    for (size_t i = 0; i < 4 * PAGE; i++) {
        const bool written = (i >= 100) && (i < 100 + 3 * PAGE);

        if (base[i] != (written ? 0x5a : 0)) {
            fail_msg("byte %zu is %u", i, base[i]);
        }
    }
    if (has) {
        assert_int_equal(kib_of(base, "ShmemPmdMapped"), 80 * PAGE / 1024);
    } else {
        printf("this system has no large pages for shared memory\n");
    }
    munmap(base, POOL_BYTES);
}

static void system_without_large_pages_is_asked_once(void **state)
{
    uint8_t *base = shared_map(POOL_BYTES);
    bt_kvt_pages_t pages = bt_kvt_pages_of(base, POOL_BYTES);

    (void)state;
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
    bt_kvt_pages_ready(&pages, 1);
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0), 0);
    assert_int_equal(pages.n, 0);
    bt_kvt_pages_ready(&pages, POOL_BYTES);
    assert_int_equal(kib_of(base, "ShmemPmdMapped"), 0);
    munmap(base, POOL_BYTES);
}

/* A file of one page: behind it SIGBUS, as in a full /dev/shm. */
static void unavailable_memory_keeps_its_small_pages(void **state)
{
    const int fd = memfd_create("short", MFD_CLOEXEC);
    uint8_t *area = bt_kvt_pages_reserve(4 * PAGE);
    bt_kvt_pages_t pages;

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)PAGE), 0);
    assert_non_null(area);
    assert_ptr_equal(mmap(area, 4 * PAGE, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_FIXED, fd, 0),
                     area);
    close(fd);
    pages = bt_kvt_pages_of(area, 4 * PAGE);
    bt_kvt_pages_ready(&pages, 4 * PAGE);
    assert_int_equal(pages.n, 0);
    munmap(area, 4 * PAGE);
}

/* A file without its last page: behind it SIGBUS. */
static void large_pages_are_prepared_without_a_page_fault(void **state)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t bytes = 3 * 512 * page;
    const int fd = memfd_create("pool", MFD_CLOEXEC);
    uint8_t *area =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    unsigned char there;

    (void)state;
    assert_ptr_not_equal(area, MAP_FAILED);
    assert_int_equal(ftruncate(fd, (off_t)(bytes - page)), 0);
    area[5 * page + 7] = 0x5a;
    assert_int_equal(bt_kvt_pages_take(area, bytes - page), BT_OK);
    for (size_t i = 0; i < bytes / page - 1; i++) {
        assert_int_equal(mincore(area + i * page, page, &there), 0);
        assert_int_equal(there & 1, 1);
    }
    assert_int_equal(area[5 * page + 7], 0x5a);
    assert_int_equal(bt_kvt_pages_take(area, bytes), BT_ERR_NO_MEMORY);
    assert_int_equal(bt_kvt_pages_take(area, 1), BT_OK);
    munmap(area, bytes);
    close(fd);
}

static void pool_is_warmed(bt_kvt_path_t path, bool has, const char *field)
{
    const bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
                                    .path = path,
                                    .net_device = "lo",
                                    .pool_bytes = 8 * PAGE,
                                    .instance = 1,
                                    .keepalive_ms = 100,
                                    .dead_ms = 1000,
                                    .quarantine_ms = 1000};
    bt_kvt_t *kvt = NULL;
    uint8_t *pool;

    assert_int_equal(bt_kvt_open(&config, &kvt), BT_OK);
    pool = bt_kvt_pool(kvt);
    assert_int_equal((uintptr_t)pool % PAGE, 0);
    bt_kvt_pool_ready(kvt, 1);
    while (bt_kvt_pool_warm(kvt)) {
    }
    memset(pool, 1, 8 * PAGE);
    if (has) {
        assert_int_equal(kib_of(pool, field), 8 * PAGE / 1024);
    }
    bt_kvt_close(kvt);
}

static void shared_and_private_pools_have_large_pages(void **state)
{
    (void)state;
    pool_is_warmed(BT_KVT_PATH_SHM, system_has_them(), "ShmemPmdMapped");
    pool_is_warmed(BT_KVT_PATH_NETWORK, system_has_private_ones(),
                   "AnonHugePages");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BT_TEST(reserved_addresses_are_aligned_and_no_more_than_asked_for),
        BT_TEST(large_pages_start_at_the_front_and_keep_the_bytes),
        BT_TEST(system_without_large_pages_is_asked_once),
        BT_TEST(unavailable_memory_keeps_its_small_pages),
        BT_TEST(large_pages_are_prepared_without_a_page_fault),
        BT_TEST(shared_and_private_pools_have_large_pages),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
