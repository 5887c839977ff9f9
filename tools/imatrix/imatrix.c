/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/imatrix/imatrix.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/files.h"
#include "common/base/text.h"
#include "inference/gguf/gguf_meta.h"

#define LEAST 1e-3f /* minimum weight of a column, for a mean of 1 */

void bt_imatrix_fini(bt_imatrix_t *m)
{
    for (uint32_t i = 0; i < m->n_entries; i++) {
        bt_free(m->entries[i].name);
        bt_free(m->entries[i].sums);
        bt_free(m->entries[i].counts);
    }
    bt_free(m->entries);
    bt_free(m->text);
    bt_free(m->source);
    *m = (bt_imatrix_t){0};
}

const bt_imatrix_entry_t *bt_imatrix_find(const bt_imatrix_t *m,
                                          bt_gguf_str_t name)
{
    for (uint32_t i = 0; i < m->n_entries; i++) {
        if (bt_gguf_str_is(name, m->entries[i].name)) {
            return &m->entries[i];
        }
    }
    return NULL;
}

bt_status_t bt_imatrix_add(bt_imatrix_t *m, const char *name, size_t name_len,
                           uint32_t n, uint32_t n_mats, uint32_t *i_p)
{
    bt_imatrix_entry_t e = {.n = n, .n_mats = n_mats};

    if (!bt_array_grow(&m->entries, &m->cap, m->n_entries + 1,
                       sizeof(*m->entries))) {
        return BT_ERR_NO_MEMORY;
    }
    e.name = bt_memdup(name, name_len);
    e.sums = bt_calloc(n, sizeof(*e.sums));
    e.counts = bt_calloc(n_mats, sizeof(*e.counts));
    if ((e.name == NULL) || (e.sums == NULL) || (e.counts == NULL)) {
        bt_free(e.name);
        bt_free(e.sums);
        bt_free(e.counts);
        return BT_ERR_NO_MEMORY;
    }
    *i_p = m->n_entries;
    m->entries[m->n_entries++] = e;
    return BT_OK;
}

/* True when the entry has the columns of each matrix, or of one for all of
 * them. */
static bool fits(const bt_imatrix_entry_t *e, const bt_gguf_tensor_t *t)
{
    const uint64_t n_in = t->dims[0];
    const uint64_t n_mats = t->dims[2] * t->dims[3];

    return (n_in > 0) && ((e->n == n_in) || (e->n == n_in * n_mats)) &&
           ((e->n_mats == 1) || (e->n == n_in * e->n_mats));
}

bt_status_t bt_imatrix_check(const bt_imatrix_t *m, const bt_gguf_t *gguf,
                             uint64_t *n_p, char *why, size_t why_bytes)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *const t = bt_gguf_tensor_at(gguf, i);
        const bt_imatrix_entry_t *const e = bt_imatrix_find(m, t->name);

        if (e == NULL) {
            continue;
        }
        if (!fits(e, t)) {
            snprintf(why, why_bytes,
                     "it is of another model: %.200s has %u columns there, and "
                     "%" PRIu64 " x %" PRIu64 " in the model",
                     e->name, e->n, t->dims[0], (t->dims[2] * t->dims[3]));
            return BT_ERR_MISMATCH;
        }
        n++;
    }
    *n_p = n;
    return BT_OK;
}

void bt_imatrix_weights(const bt_imatrix_entry_t *entry, uint64_t mat,
                        uint32_t n_in, float *weights)
{
    const uint64_t i = (entry->n > n_in) ? mat : 0;
    const float *const sums = entry->sums + i * n_in;
    double mean = 0.0;

    for (uint32_t k = 0; k < n_in; k++) {
        mean += (double)sums[k] / (double)n_in;
    }
    for (uint32_t k = 0; k < n_in; k++) {
        weights[k] =
            (mean > 0.0) ? (float)((double)sums[k] / mean) + LEAST : 1.0f;
    }
}

bt_hash128_t bt_imatrix_hash(const bt_imatrix_t *m)
{
    bt_hash128_t hash = {0};

    for (uint32_t i = 0; i < m->n_entries; i++) {
        const bt_imatrix_entry_t *const e = &m->entries[i];
        const bt_hash128_t parts[] = {
            hash, bt_hash128(e->name, strlen(e->name), 0),
            bt_hash128(e->sums, e->n * sizeof(*e->sums), 0),
            bt_hash128(e->counts, e->n_mats * sizeof(*e->counts), 0)};

        hash = bt_hash128(parts, sizeof(parts), 0);
    }
    return hash;
}

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

#define MAX_FILE   ((size_t)1 << 31)
#define PATH_BYTES 4096u
#define ALIGNMENT  32u

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
    bt_gguf_meta_array(meta, "imatrix.datasets", BT_GGUF_STRING, 1);
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
