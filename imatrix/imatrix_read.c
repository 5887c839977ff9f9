/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/read_file.h"
#include "imatrix/imatrix.h"

#define MAX_DAT  ((size_t)1 << 30)
#define MAX_NAME 512u
#define SUMS     ".in_sum2"
#define COUNTS   ".counts"
#define TYPE_F32 0u

/* True when sums of squares and counts of rows are finite, and at least 0. */
static bt_status_t check_values(const bt_imatrix_entry_t *e, char *why,
                                size_t why_bytes)
{
    for (uint32_t i = 0; i < e->n; i++) {
        if (!isfinite(e->sums[i]) || (e->sums[i] < 0.0f)) {
            snprintf(why, why_bytes, "column %u of %.200s has no mean square",
                     i, e->name);
            return BT_ERR_BAD_FILE;
        }
    }
    for (uint32_t i = 0; i < e->n_mats; i++) {
        if (!isfinite(e->counts[i]) || (e->counts[i] < 0.0f)) {
            snprintf(why, why_bytes, "%.200s was given no number of rows",
                     e->name);
            return BT_ERR_BAD_FILE;
        }
    }
    return BT_OK;
}

/* A GGUF string with zero bytes inside would be a different one in C. */
static bool is_name(bt_gguf_str_t name)
{
    return (name.len > 0) && (name.len < MAX_NAME) &&
           (memchr(name.data, '\0', name.len) == NULL);
}

static bt_status_t take_tensor(const bt_gguf_t *gguf, const bt_gguf_tensor_t *t,
                               size_t name_len, char *why, size_t why_bytes,
                               bt_imatrix_t *m)
{
    char other[MAX_NAME + sizeof(COUNTS)];
    const bt_gguf_str_t name = {.data = t->name.data, .len = name_len};
    const bt_gguf_tensor_t *counts;
    uint64_t n;
    uint32_t i = 0;
    bt_status_t status;

    if (!is_name(name) || (bt_imatrix_find(m, name) != NULL)) {
        snprintf(why, why_bytes, "a name of a tensor that cannot be");
        return BT_ERR_BAD_FILE;
    }
    snprintf(other, sizeof(other), "%.*s" COUNTS, (int)name_len, name.data);
    counts = bt_gguf_tensor(gguf, other);
    n = t->dims[0] * t->dims[1];
    if ((counts == NULL) || (t->type != TYPE_F32) ||
        (counts->type != TYPE_F32) || (t->data == NULL) ||
        (counts->data == NULL) || (t->bytes != n * sizeof(float)) ||
        (counts->bytes != counts->dims[1] * sizeof(float)) || (n == 0) ||
        (n > UINT32_MAX) || (counts->dims[1] != t->dims[1])) {
        snprintf(why, why_bytes,
                 "%.*s has no sums and counts of 32 bits that fit together",
                 (int)name_len, name.data);
        return BT_ERR_BAD_FILE;
    }
    status = bt_imatrix_add(m, name.data, name_len, (uint32_t)n,
                            (uint32_t)t->dims[1], &i);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s", bt_status_str(status));
        return status;
    }
    memcpy(m->entries[i].sums, t->data, t->bytes);
    memcpy(m->entries[i].counts, counts->data, counts->bytes);
    return check_values(&m->entries[i], why, why_bytes);
}

/* Reads a key about the source; a missing key is no error. */
static char *copy_text(bt_status_t status, bt_gguf_str_t text)
{
    return (status == BT_OK) ? bt_memdup(text.data, text.len) : NULL;
}

static bt_status_t read_gguf(const char *path, char *why, size_t why_bytes,
                             bt_imatrix_t *m)
{
    const size_t end = strlen(SUMS);
    bt_gguf_t *gguf = NULL;
    bt_gguf_str_t text = {0};
    bt_status_t status = bt_gguf_open(path, why, why_bytes, &gguf);

    if (status != BT_OK) {
        return status;
    }
    for (uint64_t i = 0; (i < bt_gguf_n_tensors(gguf)) && (status == BT_OK);
         i++) {
        const bt_gguf_tensor_t *const t = bt_gguf_tensor_at(gguf, i);

        if ((t->name.len > end) &&
            (memcmp(t->name.data + t->name.len - end, SUMS, end) == 0)) {
            status = take_tensor(gguf, t, t->name.len - end, why, why_bytes, m);
        }
    }
    if ((status == BT_OK) && (m->n_entries == 0)) {
        snprintf(why, why_bytes,
                 "it has no tensor NAME" SUMS ", as importance matrices have");
        status = BT_ERR_BAD_FILE;
    }
    if (status == BT_OK) {
        /* Missing keys and keys of another type stay 0. */
        (void)!bt_gguf_get_u32(gguf, "imatrix.chunk_count", &m->n_windows);
        (void)!bt_gguf_get_u32(gguf, "imatrix.chunk_size", &m->window);
        m->text = copy_text(
            bt_gguf_array_str(gguf, "imatrix.datasets", 0, &text), text);
        m->source = copy_text(
            bt_gguf_get_str(gguf, BT_IMATRIX_KEY_SOURCE, &text), text);
    }
    bt_gguf_close(gguf);
    return status;
}

typedef struct cursor {
    const uint8_t *data;
    size_t left;
} cursor_t;

static bool take(cursor_t *c, size_t n, const void **data_p)
{
    if (n > c->left) {
        return false;
    }
    *data_p = c->data;
    c->data += n;
    c->left -= n;
    return true;
}

static bool take_i32(cursor_t *c, int32_t *value_p)
{
    const void *data = NULL;

    if (!take(c, sizeof(*value_p), &data)) {
        return false;
    }
    memcpy(value_p, data, sizeof(*value_p));
    return true;
}

/* @retval BT_ERR_BAD_FILE  with why untouched: truncated or absurd */
static bt_status_t take_entry(cursor_t *c, char *why, size_t why_bytes,
                              bt_imatrix_t *m)
{
    const void *name = NULL;
    const void *sums = NULL;
    int32_t len = 0;
    int32_t n_calls = 0;
    int32_t n = 0;
    uint32_t i = 0;
    bt_status_t status;

    if (!take_i32(c, &len) || (len < 1) || (len >= (int32_t)MAX_NAME) ||
        !take(c, (size_t)len, &name) || !take_i32(c, &n_calls) ||
        !take_i32(c, &n) || (n < 1) ||
        !take(c, (size_t)n * sizeof(float), &sums) ||
        !is_name((bt_gguf_str_t){.data = name, .len = (size_t)len}) ||
        (bt_imatrix_find(
             m, (bt_gguf_str_t){.data = name, .len = (size_t)len}) != NULL)) {
        return BT_ERR_BAD_FILE;
    }
    status = bt_imatrix_add(m, name, (size_t)len, (uint32_t)n, 1, &i);
    if (status != BT_OK) {
        return status;
    }
    memcpy(m->entries[i].sums, sums, (size_t)n * sizeof(float));
    m->entries[i].counts[0] = (n_calls > 0) ? (float)n_calls : 1.0f;
    return check_values(&m->entries[i], why, why_bytes);
}

bt_status_t bt_imatrix_parse_dat(const void *data, size_t bytes, char *why,
                                 size_t why_bytes, bt_imatrix_t *m)
{
    cursor_t c = {.data = data, .left = bytes};
    bt_status_t status = BT_ERR_BAD_FILE;
    int32_t n_entries = 0;

    snprintf(why, why_bytes,
             "it is no importance matrix: neither GGUF nor llama.cpp's .dat");
    if (!take_i32(&c, &n_entries) || (n_entries < 1)) {
        return status;
    }
    status = BT_OK;
    for (int32_t i = 0; (i < n_entries) && (status == BT_OK); i++) {
        status = take_entry(&c, why, why_bytes, m);
    }
    if (status == BT_ERR_NO_MEMORY) {
        snprintf(why, why_bytes, "%s", bt_status_str(status));
    } else if (status == BT_OK) {
        why[0] = '\0';
    }
    return status;
}

static bt_status_t read_dat(int fd, char *why, size_t why_bytes,
                            bt_imatrix_t *m)
{
    const off_t size = lseek(fd, 0, SEEK_END);
    uint8_t *data;
    size_t n = 0;
    bt_status_t status;

    if ((size < 0) || (lseek(fd, 0, SEEK_SET) != 0)) {
        snprintf(why, why_bytes, "%s", strerror(errno));
        return BT_ERR_IO;
    }
    if ((size_t)size > MAX_DAT) {
        snprintf(why, why_bytes, "%s", bt_status_str(BT_ERR_TOO_LARGE));
        return BT_ERR_TOO_LARGE;
    }
    data = bt_calloc((size_t)size + 1, 1);
    if (data == NULL) {
        snprintf(why, why_bytes, "%s", bt_status_str(BT_ERR_NO_MEMORY));
        return BT_ERR_NO_MEMORY;
    }
    status = bt_read_file(fd, data, (size_t)size, &n);
    if (status == BT_OK) {
        n = (n < (size_t)size) ? n : (size_t)size;
        status = bt_imatrix_parse_dat(data, n, why, why_bytes, m);
    } else {
        snprintf(why, why_bytes, "%s", strerror(errno));
    }
    bt_free(data);
    return status;
}

bt_status_t bt_imatrix_read(const char *path, char *why, size_t why_bytes,
                            bt_imatrix_t *m)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char magic[4] = "";
    bt_status_t status;

    if (fd < 0) {
        snprintf(why, why_bytes, "%s", strerror(errno));
        return (errno == ENOENT) ? BT_ERR_NOT_FOUND : BT_ERR_IO;
    }
    if ((read(fd, magic, sizeof(magic)) == (ssize_t)sizeof(magic)) &&
        (memcmp(magic, "GGUF", sizeof(magic)) == 0)) {
        status = read_gguf(path, why, why_bytes, m);
    } else {
        status = read_dat(fd, why, why_bytes, m);
    }
    close(fd);
    return status;
}
