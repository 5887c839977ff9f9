/* SPDX-License-Identifier: Apache-2.0 */
/** @file store_fixture.h  A store in a folder of its own, and its files. */
#ifndef BT_TESTS_UNIT_ROUTER_STORE_FIXTURE_H
#define BT_TESTS_UNIT_ROUTER_STORE_FIXTURE_H

#include "tests/support/testsupport.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "router/store/store.h"

#define START_US 1700000000000000u /* 2023-11-14 22:13:20 */
#define TTL_S    1000u

typedef struct folder {
    char parent[64], path[80], key[80];
    bt_store_config_t config;
    bt_store_t *store;
} folder_t;

static void folder_init(folder_t *f)
{
    snprintf(f->parent, sizeof(f->parent), "/tmp/baton-store-XXXXXX");
    assert_non_null(mkdtemp(f->parent));
    snprintf(f->path, sizeof(f->path), "%s/store", f->parent);
    snprintf(f->key, sizeof(f->key), "%s/key", f->parent);
    f->store = NULL;
    f->config = (bt_store_config_t){
        .path = f->path,
        .key_path = "",
        .munge_socket = "",
        .limit_bytes = 10 << 20,
        .space_bytes = 5 << 20,
        .ttl_s = TTL_S,
    };
}

static __attribute__((unused)) void folder_write(const char *path,
                                                 const char *text)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static void folder_open(folder_t *f)
{
    assert_int_equal(bt_store_open(&f->config, START_US, &f->store), BT_OK);
}

static void folder_close(folder_t *f)
{
    bt_store_close(f->store);
    f->store = NULL;
}

static __attribute__((unused)) void folder_reopen(folder_t *f)
{
    folder_close(f);
    folder_open(f);
}

/* Counts the files of the folder, without the lock. */
static __attribute__((unused)) unsigned folder_count(const folder_t *f)
{
    DIR *dir = opendir(f->path);
    const struct dirent *entry;
    unsigned n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        n += (entry->d_name[0] != '.') && (strcmp(entry->d_name, "lock") != 0);
    }
    closedir(dir);
    return n;
}

static void folder_fini(folder_t *f)
{
    char command[160];

    folder_close(f);
    snprintf(command, sizeof(command), "rm -rf %s", f->parent);
    assert_int_equal(system(command), 0);
}

/* Puts an object of n bytes, which are its index modulo 251. */
static __attribute__((unused)) bt_stored_t *
put_bytes(folder_t *f, const char *space, size_t n)
{
    uint8_t *data = malloc(n + 1);
    bt_stored_t *object = NULL;
    bt_store_put_t *put;

    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        data[i] = (uint8_t)(i % 251);
    }
    assert_int_equal(
        bt_store_put_begin(f->store, BT_STORE_FILE, space, n, START_US, &put),
        BT_OK);
    assert_int_equal(bt_store_put_describe(put, "label", 5, 0), BT_OK);
    for (size_t at = 0; at < n;) {
        const size_t piece = (n - at < 50000) ? n - at : 50000;

        assert_int_equal(bt_store_put_write(put, data + at, piece), BT_OK);
        at += piece;
    }
    assert_int_equal(bt_store_put_commit(put), BT_OK);
    object = bt_store_put_end(put);
    assert_non_null(object);
    free(data);
    return object;
}

/* Reads an object of put_bytes(). */
static __attribute__((unused)) bt_status_t
read_bytes(const folder_t *f, const bt_stored_t *object, size_t *n_p)
{
    bt_store_reader_t *reader = NULL;
    const void *data;
    size_t bytes = 1;
    bt_status_t status = bt_store_reader_open(f->store, object, &reader);

    *n_p = 0;
    while ((status == BT_OK) && (bytes > 0)) {
        status = bt_store_reader_next(reader, &data, &bytes);
        for (size_t i = 0; (status == BT_OK) && (i < bytes); i++) {
            assert_int_equal(((const uint8_t *)data)[i], (*n_p + i) % 251);
        }
        *n_p += (status == BT_OK) ? bytes : 0;
    }
    bt_store_reader_close(reader);
    return status;
}

static __attribute__((unused)) void wait_for_pool(bt_pool_t *pool)
{
    while (bt_pool_n_jobs(pool) > 0) {
        struct pollfd at = {.fd = bt_pool_fd(pool), .events = POLLIN};

        (void)poll(&at, 1, -1);
        (void)bt_pool_next(pool);
    }
}

#endif
