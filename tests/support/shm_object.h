/* SPDX-License-Identifier: Apache-2.0 */
/** @file shm_object.h
 *
 * Objects of POSIX shared memory as a client makes them, under names of this
 * process alone: "/shmtest-PID-WORD".
 */
#ifndef BT_TESTS_SUPPORT_SHM_OBJECT_H
#define BT_TESTS_SUPPORT_SHM_OBJECT_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/testsupport.h"

typedef struct shm_object {
    char key[64];  /* "/shmtest-…" */
    char path[96]; /* below /dev/shm */
    int fd;
} shm_object_t;

static inline void shm_name(shm_object_t *o, const char *word)
{
    snprintf(o->key, sizeof(o->key), "/shmtest-%d-%s", (int)getpid(), word);
    snprintf(o->path, sizeof(o->path), "/dev/shm%s", o->key);
}

static inline void shm_make(shm_object_t *o, const char *word, off_t bytes)
{
    shm_name(o, word);
    o->fd = shm_open(o->key, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(o->fd >= 0);
    assert_int_equal(ftruncate(o->fd, bytes), 0);
}

static inline void shm_put(const shm_object_t *o, off_t offset,
                           const void *data, size_t bytes)
{
    assert_int_equal(pwrite(o->fd, data, bytes, offset), (ssize_t)bytes);
}

static inline void shm_get(const shm_object_t *o, off_t offset, void *out,
                           size_t bytes)
{
    assert_int_equal(pread(o->fd, out, bytes, offset), (ssize_t)bytes);
}

static inline off_t shm_size(const shm_object_t *o)
{
    struct stat st;

    assert_int_equal(fstat(o->fd, &st), 0);
    return st.st_size;
}

static inline void shm_resize(const shm_object_t *o, off_t bytes)
{
    assert_int_equal(ftruncate(o->fd, bytes), 0);
}

static inline void shm_remove(const shm_object_t *o)
{
    close(o->fd);
    shm_unlink(o->key);
}

#endif
