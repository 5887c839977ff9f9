/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/run_dir.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/cleanup.h"
#include "common/base/log.h"

#define KEY_BYTES  32
#define N_PARENTS  3
#define LEAF_BYTES (sizeof("/baton-XXXXXX") - 1)

/* Where run directories are made, the best place first. Some are NULL. */
static void list_parents(const char *parents[N_PARENTS])
{
    parents[0] = getenv("XDG_RUNTIME_DIR");
    parents[1] = getenv("TMPDIR");
    parents[2] = "/tmp";
}

static bool make_under(const char *parent, bt_run_dir_t *dir)
{
    return (parent != NULL) && (parent[0] == '/') &&
           (strlen(parent) + LEAF_BYTES < BT_RUN_DIR_BYTES) &&
           (bt_own_dir_create(parent, &dir->own) == BT_OK);
}

static bt_status_t write_key(const char *path)
{
    BT_CLEANUP(close)
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    static const char digits[] = "0123456789abcdef";
    unsigned char key[KEY_BYTES];
    char text[2 * KEY_BYTES + 1];
    bt_status_t status = BT_ERR_IO;

    if ((fd < 0) || (getrandom(key, sizeof(key), 0) != (ssize_t)sizeof(key))) {
        return BT_ERR_IO;
    }
    for (size_t i = 0; i < sizeof(key); i++) {
        text[2 * i] = digits[key[i] >> 4];
        text[2 * i + 1] = digits[key[i] & 15u];
    }
    text[2 * sizeof(key)] = '\n';
    if (write(fd, text, sizeof(text)) == (ssize_t)sizeof(text)) {
        status = BT_OK;
    }
    explicit_bzero(key, sizeof(key));
    explicit_bzero(text, sizeof(text));
    return status;
}

bt_status_t bt_run_dir_create(bt_run_dir_t *dir)
{
    const char *parents[N_PARENTS];
    bt_run_dir_t made;

    list_parents(parents);
    if (!make_under(parents[0], &made) && !make_under(parents[1], &made) &&
        !make_under(parents[2], &made)) {
        BT_LOG_ERROR("cannot make a directory for sockets in /tmp: %m");
        return BT_ERR_IO;
    }
    snprintf(made.path, sizeof(made.path), "%.*s", BT_RUN_DIR_BYTES - 1,
             made.own.path);
    snprintf(made.key_file, sizeof(made.key_file), "%s/key", made.path);
    if (write_key(made.key_file) != BT_OK) {
        BT_LOG_ERROR("cannot write the cluster key %s: %m", made.key_file);
        bt_run_dir_remove(&made);
        return BT_ERR_IO;
    }
    *dir = made;
    return BT_OK;
}

/* Where @a i is the first of its name. */
static bool is_parent(const char *const parents[N_PARENTS], size_t i)
{
    if ((parents[i] == NULL) || (parents[i][0] != '/')) {
        return false;
    }
    for (size_t k = 0; k < i; k++) {
        if ((parents[k] != NULL) && (strcmp(parents[k], parents[i]) == 0)) {
            return false;
        }
    }
    return true;
}

void bt_run_dir_each(bt_own_dir_fn fn, void *arg)
{
    const char *parents[N_PARENTS];

    list_parents(parents);
    for (size_t i = 0; i < N_PARENTS; i++) {
        if (is_parent(parents, i)) {
            bt_own_dir_each(parents[i], fn, arg);
        }
    }
}

void bt_run_dir_remove(bt_run_dir_t *dir)
{
    bt_own_dir_remove(&dir->own);
}

void bt_run_dir_remove_dead(void)
{
    const char *parents[N_PARENTS];

    list_parents(parents);
    for (size_t i = 0; i < N_PARENTS; i++) {
        if (is_parent(parents, i)) {
            bt_own_dir_remove_dead(parents[i]);
        }
    }
}
