/* SPDX-License-Identifier: Apache-2.0 */
#include "router/frontend/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

struct bt_region {
    uint32_t refs; /* the table's, and those of uses */
    int fd;
    bt_region_info_t info;
};

struct bt_regions {
    bt_region_t *list[BT_REGIONS_MAX];
    size_t n;
    uint64_t bytes; /* of all regions */
    uint64_t held, max_held;
};

/* ---- birth and end ---- */

bt_status_t bt_regions_create(uint64_t max_held_bytes, bt_regions_t **regions_p)
{
    bt_regions_t *regions = bt_calloc(1, sizeof(*regions));

    if (regions == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    regions->max_held = max_held_bytes;
    *regions_p = regions;
    return BT_OK;
}

void bt_regions_destroy(bt_regions_t *regions)
{
    if (regions != NULL) {
        bt_regions_unregister(regions, NULL);
        bt_free(regions);
    }
}

void bt_region_unref(bt_region_t *region)
{
    if ((region != NULL) && (--region->refs == 0)) {
        close(region->fd);
        bt_free(region);
    }
}

/* ---- the object behind a key ---- */

/* Name prefixes of shared memory that UCX and MPI create in Baton's processes,
 * under this user. Baton's own segments have no name. */
static const char *const of_ours[] = {
    "ucx_shm_posix_", "vader_segment.", "sm_segment.", "osc_rdma.", "osc_sm.",
    "open_mpi.",      "ompi",           "pmix",        "baton-",
};

static bool is_ours(const char *file)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(of_ours); i++) {
        if (strncmp(file, of_ours[i], strlen(of_ours[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* Returns the name of the file, NULL: the key is invalid. */
static const char *file_of(const char *key)
{
    const char *file = (key[0] == '/') ? key + 1 : key;

    if ((file[0] == '\0') || (strchr(file, '/') != NULL) ||
        (strcmp(file, ".") == 0) || (strcmp(file, "..") == 0)) {
        return NULL;
    }
    return file;
}

static bt_status_t cannot_open(const char *name, const char *key, int why,
                               bt_api_error_t *error)
{
    if ((why == EMFILE) || (why == ENFILE) || (why == ENOMEM)) {
        bt_api_error_set(error, 503, NULL,
                         "shared memory region '%s': no descriptor or memory "
                         "is left for it, try again later",
                         name);
        return BT_ERR_BUSY;
    }
    return bt_api_error_invalid(
        error, NULL, "shared memory region '%s': unable to open key '%s': %s",
        name, key,
        (why == ELOOP)    ? "it is a symbolic link"
        : (why == ENOENT) ? "there is no such object"
                          : strerrordesc_np(why));
}

/* Returns why the object may not be used, or NULL. */
static const char *why_not(const struct stat *st)
{
    if (!S_ISREG(st->st_mode)) {
        return "it is no shared memory object";
    }
    if (st->st_uid != geteuid()) {
        return "it belongs to another user than the server's";
    }
    /* Its other name might be one of Baton's. */
    return (st->st_nlink != 1) ? "it has more names than this" : NULL;
}

static bt_status_t check_object(const bt_region_t *region,
                                bt_api_error_t *error)
{
    const bt_region_info_t *info = &region->info;
    struct stat st;
    const char *why;

    if (fstat(region->fd, &st) != 0) {
        return cannot_open(info->name, info->key, errno, error);
    }
    why = why_not(&st);
    if (why != NULL) {
        return bt_api_error_invalid(error, NULL,
                                    "shared memory region '%s': key '%s': %s",
                                    info->name, info->key, why);
    }
    if ((info->offset > (uint64_t)st.st_size) ||
        (info->bytes > (uint64_t)st.st_size - info->offset)) {
        return bt_api_error_invalid(error, NULL,
                                    "shared memory region '%s': %" PRIu64
                                    " bytes from %" PRIu64 " on are more "
                                    "than the %" PRIu64 " of key '%s'",
                                    info->name, info->bytes, info->offset,
                                    st.st_size, info->key);
    }
    return BT_OK;
}

/* Opens the object, never through a link, and never waiting for the other end
 * of a pipe. */
static bt_status_t open_object(bt_region_t *region, const char *file,
                               bt_api_error_t *error)
{
    char path[sizeof(BT_REGIONS_DIR) + BT_REGION_KEY_BYTES];
    bt_status_t status;

    snprintf(path, sizeof(path), BT_REGIONS_DIR "/%s", file);
    region->fd =
        open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (region->fd < 0) {
        return cannot_open(region->info.name, region->info.key, errno, error);
    }
    status = check_object(region, error);
    if (status != BT_OK) {
        close(region->fd);
    }
    return status;
}

/* ---- the table ---- */

/* Returns the region's index, or the number of regions if there is none. */
static size_t index_of(const bt_regions_t *regions, const char *name)
{
    size_t i = 0;

    while ((i < regions->n) &&
           (strcmp(regions->list[i]->info.name, name) != 0)) {
        i++;
    }
    return i;
}

static bt_status_t check_words(const bt_regions_t *regions, const char *name,
                               const char *key, bt_api_error_t *error)
{
    if ((name[0] == '\0') || (strlen(name) >= BT_REGION_NAME_BYTES)) {
        return bt_api_error_invalid(
            error, NULL,
            "the name of a shared memory region has from 1 to %d bytes",
            BT_REGION_NAME_BYTES - 1);
    }
    if (index_of(regions, name) < regions->n) {
        return bt_api_error_invalid(
            error, NULL, "shared memory region '%s' is registered already",
            name);
    }
    if ((strlen(key) >= BT_REGION_KEY_BYTES) || (file_of(key) == NULL)) {
        return bt_api_error_invalid(
            error, NULL,
            "shared memory region '%s': its key is a name of at most %d "
            "bytes, without a slash but a first one",
            name, BT_REGION_KEY_BYTES - 1);
    }
    if (is_ours(file_of(key))) {
        return bt_api_error_invalid(
            error, NULL,
            "shared memory region '%s': key '%s' is a name of the server's "
            "own shared memory",
            name, key);
    }
    return BT_OK;
}

static bt_status_t check_limits(const bt_regions_t *regions, const char *name,
                                uint64_t bytes, bt_api_error_t *error)
{
    if (bytes == 0) {
        return bt_api_error_invalid(
            error, NULL, "shared memory region '%s': byte_size is 0", name);
    }
    if ((regions->n < BT_REGIONS_MAX) &&
        (bytes <= BT_REGIONS_MAX_BYTES - regions->bytes)) {
        return BT_OK;
    }
    bt_api_error_set(
        error, 400, NULL,
        "shared memory region '%s': at most %d regions and %" PRIu64
        " bytes may "
        "be registered, unregister some",
        name, BT_REGIONS_MAX, BT_REGIONS_MAX_BYTES);
    return BT_ERR_BUSY;
}

bt_status_t bt_regions_register(bt_regions_t *regions, const char *name,
                                const char *key, uint64_t offset,
                                uint64_t bytes, bt_api_error_t *error_p)
{
    bt_status_t status = check_words(regions, name, key, error_p);
    bt_region_t *region;

    if (status == BT_OK) {
        status = check_limits(regions, name, bytes, error_p);
    }
    if (status != BT_OK) {
        return status;
    }
    region = bt_calloc(1, sizeof(*region));
    if (region == NULL) {
        bt_api_error_set(error_p, 503, NULL,
                         "out of memory for shared memory region '%s'", name);
        return BT_ERR_NO_MEMORY;
    }
    region->refs = 1;
    region->info.offset = offset;
    region->info.bytes = bytes;
    snprintf(region->info.name, sizeof(region->info.name), "%s", name);
    snprintf(region->info.key, sizeof(region->info.key), "%s", key);
    status = open_object(region, file_of(region->info.key), error_p);
    if (status != BT_OK) {
        bt_free(region);
        return status;
    }
    regions->list[regions->n++] = region;
    regions->bytes += bytes;
    return BT_OK;
}

static void remove_at(bt_regions_t *regions, size_t i)
{
    bt_region_t *region = regions->list[i];

    regions->bytes -= region->info.bytes;
    regions->n--;
    memmove(&regions->list[i], &regions->list[i + 1],
            (regions->n - i) * sizeof(regions->list[0]));
    bt_region_unref(region);
}

void bt_regions_unregister(bt_regions_t *regions, const char *name)
{
    size_t i;

    if (name == NULL) {
        while (regions->n > 0) {
            remove_at(regions, regions->n - 1);
        }
        return;
    }
    i = index_of(regions, name);
    if (i < regions->n) {
        remove_at(regions, i);
    }
}

size_t bt_regions_count(const bt_regions_t *regions)
{
    return regions->n;
}

const bt_region_info_t *bt_regions_at(const bt_regions_t *regions, size_t i)
{
    BT_ASSERT(i < regions->n);
    return &regions->list[i]->info;
}

bt_region_t *bt_regions_find(const bt_regions_t *regions, const char *name)
{
    const size_t i = index_of(regions, name);

    if (i == regions->n) {
        return NULL;
    }
    regions->list[i]->refs++;
    return regions->list[i];
}

bool bt_regions_hold(bt_regions_t *regions, uint64_t bytes)
{
    if (bytes > regions->max_held - regions->held) {
        return false;
    }
    regions->held += bytes;
    return true;
}

void bt_regions_give_back(bt_regions_t *regions, uint64_t bytes)
{
    BT_ASSERT(bytes <= regions->held);
    regions->held -= bytes;
}

/* ---- uses ---- */

bt_status_t bt_region_check(const bt_region_t *region, uint64_t offset,
                            uint64_t bytes, bt_api_error_t *error_p)
{
    const bt_region_info_t *info = &region->info;

    if ((offset <= info->bytes) && (bytes <= info->bytes - offset)) {
        return BT_OK;
    }
    return bt_api_error_invalid(error_p, NULL,
                                "%" PRIu64 " bytes from %" PRIu64
                                " on are not within the %" PRIu64
                                " of shared memory "
                                "region '%s'",
                                bytes, offset, info->bytes, info->name);
}

static bt_status_t has_shrunk(const bt_region_t *region, bt_api_error_t *error)
{
    return bt_api_error_invalid(
        error, NULL,
        "shared memory region '%s' is shorter than when it was registered",
        region->info.name);
}

static bt_status_t failed(const bt_region_t *region, const char *what, int why,
                          bt_api_error_t *error)
{
    bt_api_error_set(error, 500, NULL,
                     "shared memory region '%s' cannot be %s: %s",
                     region->info.name, what, strerrordesc_np(why));
    return BT_ERR_IO;
}

bt_status_t bt_region_read(const bt_region_t *region, uint64_t offset,
                           void *out, size_t bytes, bt_api_error_t *error_p)
{
    bt_status_t status = bt_region_check(region, offset, bytes, error_p);
    off_t from = (off_t)(region->info.offset + offset);
    uint8_t *at = out;

    while ((status == BT_OK) && (bytes > 0)) {
        const ssize_t n = pread(region->fd, at, bytes, from);

        if (n > 0) {
            at += n;
            from += n;
            bytes -= (size_t)n;
        } else if (n == 0) {
            status = has_shrunk(region, error_p);
        } else if (errno != EINTR) {
            status = failed(region, "read", errno, error_p);
        }
    }
    return status;
}

bt_status_t bt_region_write(const bt_region_t *region, uint64_t offset,
                            const void *data, size_t bytes,
                            bt_api_error_t *error_p)
{
    bt_status_t status = bt_region_check(region, offset, bytes, error_p);
    off_t to = (off_t)(region->info.offset + offset);
    const uint8_t *at = data;
    struct stat st;

    if (status != BT_OK) {
        return status;
    }
    if (fstat(region->fd, &st) != 0) {
        return failed(region, "written", errno, error_p);
    }
    if ((st.st_size < to) || ((uint64_t)(st.st_size - to) < bytes)) {
        return has_shrunk(region, error_p);
    }
    while ((status == BT_OK) && (bytes > 0)) {
        const ssize_t n = pwrite(region->fd, at, bytes, to);

        if (n > 0) {
            at += n;
            to += n;
            bytes -= (size_t)n;
        } else if ((n == 0) || (errno != EINTR)) {
            status = failed(region, "written", (n == 0) ? EIO : errno, error_p);
        }
    }
    return status;
}
