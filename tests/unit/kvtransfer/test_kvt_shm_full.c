/* SPDX-License-Identifier: Apache-2.0 */
/* Pools in a /dev/shm that is too small for them: a mount of this process
 * alone. A touch of what is not there would end it by SIGBUS. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "kvtransfer/kvt.h"
#include "kvtransfer/kvt_pages.h"
#include "tests/support/testsupport.h"

#define MIB        ((size_t)1 << 20)
#define POOL_BYTES (16 * MIB)
#define SKIPPED    77 /* as meson understands it */

#define SIZE_FOR_ONE "size=28m"

static bool fill_before; /* others do, once it looked large enough */
static unsigned n_named; /* of files, while a pool takes its memory */

bt_status_t __real_bt_kvt_pages_take(void *base, size_t bytes);
bt_status_t __wrap_bt_kvt_pages_take(void *base, size_t bytes);

static unsigned count_names(void)
{
    DIR *const dir = opendir("/dev/shm");
    const struct dirent *entry;
    unsigned n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        n += (entry->d_name[0] != '.') ? 1 : 0;
    }
    closedir(dir);
    return n;
}

static void fill_up(void)
{
    static const char zeros[65536];
    const int fd = open("/dev/shm/ballast", O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    while (write(fd, zeros, sizeof(zeros)) > 0) {
    }
    assert_int_equal(errno, ENOSPC);
    close(fd);
}

bt_status_t __wrap_bt_kvt_pages_take(void *base, size_t bytes)
{
    n_named += count_names();
    if (fill_before) {
        fill_up();
    }
    return __real_bt_kvt_pages_take(base, bytes);
}

static bt_status_t pool_open(bt_kvt_path_t path, uint64_t instance,
                             bt_kvt_t **kvt_p)
{
    const bt_kvt_config_t config = {.transport = &bt_kvt_transport_ucx,
                                    .path = path,
                                    .net_device = "lo",
                                    .pool_bytes = POOL_BYTES,
                                    .instance = instance,
                                    .keepalive_ms = 100,
                                    .dead_ms = 1000,
                                    .quarantine_ms = 1000};

    return bt_kvt_open(&config, kvt_p);
}

static int mount_small(void **state)
{
    (void)state;
    return mount("none", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV,
                 SIZE_FOR_ONE);
}

static int unmount_small(void **state)
{
    (void)state;
    fill_before = false;
    return umount2("/dev/shm", MNT_DETACH);
}

static void touch_all(bt_kvt_t *kvt)
{
    uint8_t *const pool = bt_kvt_pool(kvt);

    bt_kvt_pool_ready(kvt, POOL_BYTES);
    memset(pool, 0x5a, POOL_BYTES);
    assert_int_equal(pool[POOL_BYTES - 1], 0x5a);
}

static void second_pool_without_shm_space_is_private(void **state)
{
    bt_kvt_t *first = NULL;
    bt_kvt_t *second = NULL;

    (void)state;
    assert_int_equal(pool_open(BT_KVT_PATH_AUTO, 1, &first), BT_OK);
    assert_int_equal(pool_open(BT_KVT_PATH_SHM, 2, &second), BT_ERR_NO_MEMORY);
    assert_int_equal(pool_open(BT_KVT_PATH_AUTO, 2, &second), BT_OK);
    touch_all(first);
    touch_all(second);
    bt_kvt_close(second);
    bt_kvt_close(first);
}

/* Whoever is killed at any moment leaves nothing behind. */
static void pool_memory_is_anonymous(void **state)
{
    bt_kvt_t *kvt = NULL;

    (void)state;
    n_named = 0;
    assert_int_equal(pool_open(BT_KVT_PATH_SHM, 1, &kvt), BT_OK);
    touch_all(kvt);
    assert_int_equal(n_named, 0);
    assert_int_equal(count_names(), 0);
    bt_kvt_close(kvt);
}

static void shm_that_fills_up_reports_no_space(void **state)
{
    bt_kvt_t *kvt = NULL;

    (void)state;
    fill_before = true;
    assert_int_equal(pool_open(BT_KVT_PATH_SHM, 1, &kvt), BT_ERR_NO_MEMORY);
    assert_int_equal(pool_open(BT_KVT_PATH_AUTO, 1, &kvt), BT_OK);
    touch_all(kvt);
    bt_kvt_close(kvt);
}

static bool write_text(const char *path, const char *text)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    const bool done =
        (fd >= 0) && (write(fd, text, strlen(text)) == (ssize_t)strlen(text));

    if (fd >= 0) {
        close(fd);
    }
    return done;
}

/* A world of this process where it may mount, and files are its own. Before UCX
 * has threads; with one of a sanitizer it is refused too. */
static bool enter_own_world(void)
{
    char users[64];
    char groups[64];

    snprintf(users, sizeof(users), "0 %u 1", (unsigned)geteuid());
    snprintf(groups, sizeof(groups), "0 %u 1", (unsigned)getegid());
    return (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0) &&
           write_text("/proc/self/setgroups", "deny") &&
           write_text("/proc/self/uid_map", users) &&
           write_text("/proc/self/gid_map", groups) &&
           (mount_small(NULL) == 0) && (unmount_small(NULL) == 0);
}

#define IN_SMALL(test) \
    cmocka_unit_test_setup_teardown(test, mount_small, unmount_small)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SMALL(second_pool_without_shm_space_is_private),
        IN_SMALL(pool_memory_is_anonymous),
        IN_SMALL(shm_that_fills_up_reports_no_space),
    };

    if (!enter_own_world()) {
        printf("this user may not mount: %s\n", strerror(errno));
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
