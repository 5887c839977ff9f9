/* SPDX-License-Identifier: Apache-2.0 */
/* A folder of packed weights, and what is packed into it. */
#ifndef BT_TESTS_UNIT_INFERENCE_PACKED_PACKED_FIXTURE_H
#define BT_TESTS_UNIT_INFERENCE_PACKED_PACKED_FIXTURE_H

#include "tests/support/testsupport.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "inference/packed/packed.h"
#include "tests/support/tiny_model.h"

#define N_PIECES    5
#define PIECE_BYTES ((size_t)1000 * 1000) /* two chunks in all */
#define LIMIT_MS    20000u

/* A folder, a model file in it, and what the callbacks note. */
typedef struct world {
    char root[PATH_MAX];
    char dir[PATH_MAX + 16];
    char model[PATH_MAX + 16];
    bt_gguf_t *gguf;
    bt_packed_config_t config;
    uint32_t n_built;
    uint32_t n_pieces; /* that complete() asks for */
    int kill_at;       /* step that ends the process, 0: none */
    int n_steps;
    bool spoil; /* change the model file while it is packed */
} world_t;

static uint8_t pieces[N_PIECES][PIECE_BYTES];

static inline void name_of(uint32_t p, char name[16])
{
    snprintf(name, 16, "w%u", p);
}

static inline void spoil_model(const world_t *w)
{
    const int fd = open(w->model, O_WRONLY | O_CLOEXEC);
    struct stat st;

    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(pwrite(fd, "x", 1, st.st_size - 5000), 1);
    close(fd);
}

static inline bt_status_t build(void *ctx, bt_packed_writer_t *writer)
{
    world_t *const w = ctx;
    bt_status_t status = BT_OK;

    w->n_built++;
    for (uint32_t p = 0; (status == BT_OK) && (p < N_PIECES); p++) {
        char name[16];

        name_of(p, name);
        status = bt_packed_writer_add(writer, name, 2, p, 3, pieces[p],
                                      PIECE_BYTES - p);
    }
    if (w->spoil) {
        spoil_model(w);
    }
    return status;
}

static inline bool complete(void *ctx, const bt_packed_file_t *file)
{
    const world_t *const w = ctx;
    bool all = true;

    for (uint32_t p = 0; p < w->n_pieces; p++) {
        char name[16];
        size_t bytes = 0;

        name_of(p, name);
        all = all && (bt_packed_find(file, name, 2, p, 3, &bytes) != NULL) &&
              (bytes == PIECE_BYTES - p);
    }
    return all;
}

static inline void on_step(void *ctx)
{
    world_t *const w = ctx;

    w->n_steps++;
    if (w->n_steps == w->kill_at) {
        raise(SIGKILL);
    }
}

static inline void open_model(world_t *w)
{
    char why[200];

    bt_gguf_close(w->gguf);
    w->gguf = NULL;
    assert_int_equal(bt_gguf_open(w->model, why, sizeof(why), &w->gguf), BT_OK);
    w->config.gguf = w->gguf;
}

/* Matrices of 256 KiB: most bytes of a tensor are in no sample. */
static inline void write_model(const world_t *w)
{
    bt_tiny_model_t tiny = bt_tiny_model_default();

    tiny.dim = 256;
    tiny.ffn_dim = 512;
    assert_int_equal(bt_tiny_model_write(&tiny, w->model), BT_OK);
}

static inline world_t *make_world(void)
{
    world_t *const w = calloc(1, sizeof(*w));

    assert_non_null(w);
    snprintf(w->root, sizeof(w->root), "/tmp/baton-test-packed-XXXXXX");
    assert_non_null(mkdtemp(w->root));
    snprintf(w->dir, sizeof(w->dir), "%s/a/b", w->root);
    snprintf(w->model, sizeof(w->model), "%s/model", w->root);
    write_model(w);
    w->n_pieces = N_PIECES;
    w->config = (bt_packed_config_t){.dir = w->dir,
                                     .profile = "test",
                                     .pack_version = 1,
                                     .n_threads = 2,
                                     .expect_bytes = N_PIECES * PIECE_BYTES,
                                     .ctx = w,
                                     .build = build,
                                     .complete = complete,
                                     .on_step = on_step};
    open_model(w);
    for (uint32_t p = 0; p < N_PIECES; p++) {
        memset(pieces[p], (int)(p + 1), PIECE_BYTES);
    }
    return w;
}

/* Names in a folder, sorted; the last one in name. @return how many */
static inline int list(const char *dir, char name[NAME_MAX + 1])
{
    struct dirent **entries = NULL;
    const int n = scandir(dir, &entries, NULL, alphasort);
    int n_files = 0;

    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') {
            snprintf(name, NAME_MAX + 1, "%s", entries[i]->d_name);
            n_files++;
        }
        free(entries[i]);
    }
    free(entries);
    return n_files;
}

/* Marks are hidden files. */
static inline int count_all(const char *dir)
{
    struct dirent **entries = NULL;
    const int n = scandir(dir, &entries, NULL, NULL);

    for (int i = 0; i < n; i++) {
        free(entries[i]);
    }
    free(entries);
    return n - 2; /* "." and ".." */
}

static inline void clear(const char *dir)
{
    char name[NAME_MAX + 1];
    char path[PATH_MAX + NAME_MAX + 32];

    while (list(dir, name) > 0) {
        snprintf(path, sizeof(path), "%s/%s", dir, name);
        assert_int_equal(remove(path), 0);
    }
}

static inline void free_world(world_t *w)
{
    char above[PATH_MAX + 16];

    bt_gguf_close(w->gguf);
    clear(w->dir);
    rmdir(w->dir);
    snprintf(above, sizeof(above), "%s/a", w->root);
    rmdir(above);
    clear(w->root);
    rmdir(w->root);
    free(w);
}

/* A forked child frees what it inherited, or a leak checker tells of it; the
 * files are its parent's. */
static inline _Noreturn void end_child(world_t *w, int code)
{
    bt_gguf_close(w->gguf);
    free(w);
    _exit(code);
}

/* The path of the one file. */
static inline const char *the_file(const world_t *w)
{
    static char path[PATH_MAX + NAME_MAX + 32];
    char name[NAME_MAX + 1] = "";

    assert_int_equal(list(w->dir, name), 1);
    snprintf(path, sizeof(path), "%s/%s", w->dir, name);
    assert_non_null(strstr(name, ".packed"));
    assert_null(strstr(name, ".new"));
    return path;
}

/* Open, compare every piece, close. @return whether it was built */
static inline bool open_and_compare(world_t *w)
{
    bt_packed_store_t *store = NULL;
    bool built;

    assert_int_equal(bt_packed_store_open(&w->config, &store), BT_OK);
    for (uint32_t p = 0; p < N_PIECES; p++) {
        char name[16];
        size_t bytes = 0;
        const void *data;

        name_of(p, name);
        data =
            bt_packed_find(bt_packed_store_file(store), name, 2, p, 3, &bytes);
        assert_non_null(data);
        assert_int_equal(bytes, PIECE_BYTES - p);
        assert_int_equal((uintptr_t)data % 64, 0);
        assert_memory_equal(data, pieces[p], bytes);
    }
    built = bt_packed_store_built(store);
    bt_packed_store_close(store);
    return built;
}

#endif
