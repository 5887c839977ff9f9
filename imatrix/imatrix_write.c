/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/strbuf.h"
#include "imatrix/imatrix.h"
#include "inference/gguf/gguf_meta.h"

#define MAX_FILE   ((size_t)1 << 31)
#define MAX_NAME   512u
#define PATH_BYTES 4096u
#define ALIGNMENT  32u
#define TYPE_F32   0u

static uint64_t padded(uint64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void pad(bt_strbuf_t *out)
{
    static const char zeros[ALIGNMENT] = {0};

    if (out->len % ALIGNMENT != 0) {
        bt_strbuf_append(out, zeros, ALIGNMENT - out->len % ALIGNMENT);
    }
}

static void put_keys(const bt_imatrix_t *m, bt_gguf_meta_t *meta)
{
    const char *const text = (m->text != NULL) ? m->text : "";

    bt_gguf_meta_str(meta, "general.type", "imatrix", 7);
    bt_gguf_meta_array(meta, "imatrix.datasets", BT_GGUF_META_STR, 1);
    bt_gguf_meta_item_str(meta, text, strlen(text));
    bt_gguf_meta_u32(meta, "imatrix.chunk_count", m->n_windows);
    bt_gguf_meta_u32(meta, "imatrix.chunk_size", m->window);
    if (m->source != NULL) {
        bt_gguf_meta_str(meta, BT_IMATRIX_KEY_SOURCE, m->source,
                         strlen(m->source));
    }
}

static void put_file(const bt_imatrix_t *m, bt_strbuf_t *out)
{
    bt_gguf_meta_t meta;
    char name[MAX_NAME + 16];
    uint64_t at = 0;

    bt_gguf_meta_init(&meta, out);
    put_keys(m, &meta);
    for (uint32_t i = 0; i < m->n_entries; i++) {
        const bt_imatrix_entry_t *const e = &m->entries[i];
        const uint64_t sums[] = {e->n / e->n_mats, e->n_mats};
        const uint64_t counts[] = {1, e->n_mats};

        snprintf(name, sizeof(name), "%s.in_sum2", e->name);
        bt_gguf_meta_tensor(&meta, name, 2, sums, TYPE_F32, at);
        at += padded(e->n * sizeof(*e->sums));
        snprintf(name, sizeof(name), "%s.counts", e->name);
        bt_gguf_meta_tensor(&meta, name, 2, counts, TYPE_F32, at);
        at += padded(e->n_mats * sizeof(*e->counts));
    }
    bt_gguf_meta_end(&meta);
    pad(out);
    for (uint32_t i = 0; i < m->n_entries; i++) {
        const bt_imatrix_entry_t *const e = &m->entries[i];

        bt_strbuf_append(out, e->sums, e->n * sizeof(*e->sums));
        pad(out);
        bt_strbuf_append(out, e->counts, e->n_mats * sizeof(*e->counts));
        pad(out);
    }
}

static bool write_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, data, n);

        if ((done < 0) && (errno != EINTR)) {
            return false;
        }
        if (done > 0) {
            data += done;
            n -= (size_t)done;
        }
    }
    return true;
}

static bt_status_t put_away(const char *path, const bt_strbuf_t *file)
{
    char fresh[PATH_BYTES];
    const int n = snprintf(fresh, sizeof(fresh), "%s.new", path);
    bool good;
    int fd;

    if ((n < 0) || ((size_t)n >= sizeof(fresh))) {
        errno = ENAMETOOLONG;
        return BT_ERR_IO;
    }
    fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return BT_ERR_IO;
    }
    good = write_all(fd, file->data, file->len) && (fsync(fd) == 0);
    good = (close(fd) == 0) && good && (rename(fresh, path) == 0);
    if (!good) {
        const int error = errno;

        (void)unlink(fresh);
        errno = error;
    }
    return good ? BT_OK : BT_ERR_IO;
}

bt_status_t bt_imatrix_write(const bt_imatrix_t *m, const char *path, char *why,
                             size_t why_bytes)
{
    bt_strbuf_t file;
    bt_status_t status;

    bt_strbuf_init(&file, MAX_FILE);
    put_file(m, &file);
    status = bt_strbuf_status(&file);
    if (status == BT_OK) {
        status = put_away(path, &file);
    }
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%.200s: %s", path,
                 (status == BT_ERR_IO) ? strerror(errno)
                                       : bt_status_str(status));
    }
    bt_strbuf_fini(&file);
    return status;
}
