/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the pool, and pools of peers through shared memory. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_host.h"
#include "kvtransfer/kvt_pages.h"
#include "kvtransfer/kvt_ucx_priv.h"

#define SHM_DIR "/dev/shm"

/* Identity of a pool's file in an export. Read only on the same host, so in
 * memory layout. */
static const char file_magic[4] = {'B', 'T', 'S', 'F'};

static bool file_decode(const bt_kvt_blob_t *blob, bt_kvt_file_t *file_p)
{
    if (blob->bytes != sizeof(*file_p)) {
        return false;
    }
    memcpy(file_p, blob->data, sizeof(*file_p));
    /* A version in which UCX mapped pools has another one. */
    return memcmp(file_p->magic, file_magic, sizeof(file_magic)) == 0;
}

static bool map_bytes(const bt_kvt_export_info_t *info, size_t *bytes_p)
{
    return (info->probe_offset >= info->pool_bytes) &&
           !__builtin_add_overflow(info->probe_offset, BT_KVT_PROBE_BYTES,
                                   bytes_p) &&
           (*bytes_p <= PTRDIFF_MAX);
}

/* Opens the pool of a process of this host through that process: it has no
 * name.
 * @return -1: there is no such file */
static int file_open(const bt_kvt_host_t *host, const bt_kvt_file_t *file,
                     size_t bytes)
{
    char path[64];
    struct stat info;
    int fd;

    snprintf(path, sizeof(path), "/proc/%u/fd/%u", host->pid, file->fd);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return -1;
    }
    if ((fstat(fd, &info) != 0) || !S_ISREG(info.st_mode) ||
        (info.st_nlink != 0) || (info.st_dev != file->device) ||
        (info.st_ino != file->inode) || (info.st_size < 0) ||
        ((uint64_t)info.st_size < bytes)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Maps @a bytes of a file at an address for large pages. @return NULL: failed
 */
static void *file_map(int fd, size_t bytes)
{
    void *const area = bt_kvt_pages_reserve(bytes);

    if (area == NULL) {
        return NULL;
    }
    if (mmap(area, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
             0) == MAP_FAILED) {
        munmap(area, bytes);
        return NULL;
    }
    return area;
}

void bt_kvt_ucx_shm_unmap(ucx_link_t *ul)
{
    if (ul->map != NULL) {
        munmap(ul->map, ul->map_bytes);
        ul->map = NULL;
    }
}

void bt_kvt_ucx_unmap(bt_kvt_link_t *link)
{
    bt_kvt_ucx_shm_unmap(link->transport);
}

bt_status_t bt_kvt_ucx_map(bt_kvt_link_t *link,
                           const bt_kvt_export_info_t *info)
{
    ucx_link_t *ul = link->transport;
    const ucx_t *ucx = ul->ucx;
    bt_kvt_file_t file;
    BT_CLEANUP(close) int fd = -1;

    if (!ucx->shares || (info->shm_base == 0) || !ucx->host_known ||
        !bt_kvt_host_same(&ucx->host, &info->host) ||
        !file_decode(&info->shm_file, &file) ||
        !map_bytes(info, &ul->map_bytes)) {
        return BT_ERR_UNSUPPORTED;
    }
    fd = file_open(&info->host, &file, ul->map_bytes);
    ul->map = (fd >= 0) ? file_map(fd, ul->map_bytes) : NULL;
    if (ul->map == NULL) {
        return BT_ERR_UNSUPPORTED;
    }
    /* Identifiers can be wrong (a copied /etc, a nested container); bytes
     * written by the other side cannot. */
    if (memcmp((const uint8_t *)ul->map + info->probe_offset, info->probe,
               sizeof(info->probe)) != 0) {
        bt_kvt_ucx_unmap(link);
        return BT_ERR_UNSUPPORTED;
    }
    link->map = ul->map;
    return BT_OK;
}

uint64_t bt_kvt_ucx_copy(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                         uint32_t n_pieces, uint64_t seed)
{
    (void)link;
    return bt_hash64_copy_pieces(pieces, n_pieces, seed);
}

/* ---- the own pool ---- */

uint64_t bt_kvt_ucx_shm_headroom(void)
{
    struct statvfs fs;

    return (statvfs(SHM_DIR, &fs) == 0) ? (uint64_t)fs.f_bavail * fs.f_frsize
                                        : 0;
}

bt_status_t bt_kvt_ucx_pool_make_anonymous(ucx_t *ucx)
{
    void *area = bt_kvt_pages_reserve(ucx->mapped_bytes);

    if ((area == NULL) ||
        (mprotect(area, ucx->mapped_bytes, PROT_READ | PROT_WRITE) != 0)) {
        goto err;
    }
    (void)madvise(area, ucx->mapped_bytes, MADV_HUGEPAGE);
    ucx->kvt->pool = area;
    return BT_OK;

err:
    if (area != NULL) {
        munmap(area, ucx->mapped_bytes);
    }
    return BT_ERR_NO_MEMORY;
}

ucs_memory_type_t bt_kvt_ucx_memory_type(const ucx_t *ucx)
{
    return (ucx->kvt->config.memory == BT_KVT_MEMORY_DEVICE)
               ? UCS_MEMORY_TYPE_CUDA
               : UCS_MEMORY_TYPE_HOST;
}

bt_status_t bt_kvt_ucx_device_staged(ucx_t *ucx, const char *why)
{
    bt_kvt_config_t *config = &ucx->kvt->config;

    if (config->device.copier == NULL) {
        BT_LOG_ERROR("kv transfer: a pool of %zu bytes of device memory cannot "
                     "be registered: %s",
                     config->pool_bytes, why);
        return BT_ERR_UNSUPPORTED;
    }
    BT_LOG_INFO("kv transfer: a pool of %zu bytes of device memory is staged "
                "through host memory: %s",
                config->pool_bytes, why);
    config->memory = BT_KVT_MEMORY_STAGED;
    config->path = ucx->kvt->asked_path;
    return BT_OK;
}

bt_status_t bt_kvt_ucx_pool_register_device(ucx_t *ucx)
{
    const bt_kvt_config_t *config = &ucx->kvt->config;
    const ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE,
        .address = config->device.pool,
        .length = config->pool_bytes,
        .memory_type = UCS_MEMORY_TYPE_CUDA};
    ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};
    ucs_status_t rc = ucp_context_query(ucx->net_context, &attr);

    if ((rc != UCS_OK) ||
        ((attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA)) == 0)) {
        return bt_kvt_ucx_device_staged(
            ucx, "UCX here has no support of CUDA memory");
    }
    rc = ucp_mem_map(ucx->net_context, &params, &ucx->device_mem);
    if (rc != UCS_OK) {
        ucx->device_mem = NULL;
        return bt_kvt_ucx_device_staged(ucx, ucs_status_string(rc));
    }
    return BT_OK;
}

void bt_kvt_ucx_pool_drop(ucx_t *ucx)
{
    if (ucx->device_mem != NULL) {
        ucp_mem_unmap(ucx->net_context, ucx->device_mem);
        ucx->device_mem = NULL;
    } else if ((ucx->kvt->pool != NULL) && (ucx->pool_fd < 0) &&
               (ucx->kvt->config.memory == BT_KVT_MEMORY_HOST)) {
        munmap(ucx->kvt->pool, ucx->mapped_bytes);
    } else {
        return; /* shared memory: bt_kvt_ucx_shm_close() */
    }
    ucx->kvt->pool = NULL;
}

/* Creates a file that never has a name: however its last process ends, nothing
 * is left behind. @return -1: there is no space for it */
static int pool_file_make(size_t bytes)
{
    const int fd = open(SHM_DIR, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);

    if ((fd >= 0) && ((bt_kvt_ucx_shm_headroom() < bytes) ||
                      (ftruncate(fd, (off_t)bytes) != 0))) {
        close(fd);
        return -1;
    }
    return fd;
}

/* @return owned: ucx->pool_fd, ucx->kvt->pool; neither after a failure */
static bt_status_t pool_map_shared(ucx_t *ucx)
{
    struct stat info;
    void *pool = NULL;
    const int fd = pool_file_make(ucx->mapped_bytes);

    if ((fd < 0) || (fstat(fd, &info) != 0)) {
        goto err_fd;
    }
    pool = file_map(fd, ucx->mapped_bytes);
    if (pool == NULL) {
        goto err_fd;
    }
    if (bt_kvt_pages_take(pool, ucx->mapped_bytes) != BT_OK) {
        goto err_map;
    }
    memcpy(ucx->pool_file.magic, file_magic, sizeof(file_magic));
    ucx->pool_file.fd = (uint32_t)fd;
    ucx->pool_file.device = info.st_dev;
    ucx->pool_file.inode = info.st_ino;
    ucx->pool_fd = fd;
    ucx->kvt->pool = pool;
    return BT_OK;

err_map:
    munmap(pool, ucx->mapped_bytes);
err_fd:
    if (fd >= 0) {
        close(fd);
    }
    return BT_ERR_NO_MEMORY;
}

/* Asks for large pages; small ones are no error. */
static void warm_pool(bt_kvt_t *kvt)
{
    const bt_kvt_pages_t pages =
        bt_kvt_pages_of(kvt->pool, kvt->config.pool_bytes);

    if ((pages.n > 0) && (bt_kvt_warmer_start(&pages, bt_kvt_pages_ready,
                                              &kvt->warmer) != BT_OK)) {
        BT_LOG_WARN("cannot start the thread that prefaults the KV pool");
    }
}

bt_status_t bt_kvt_ucx_shm_open(ucx_t *ucx)
{
    bt_status_t status;

    if (!ucx->host_known) {
        return BT_ERR_UNSUPPORTED;
    }
    ucx->shares = true;
    if (ucx->kvt->config.memory != BT_KVT_MEMORY_HOST) {
        return BT_OK;
    }
    if (getrandom(ucx->probe, sizeof(ucx->probe), 0) !=
        (ssize_t)sizeof(ucx->probe)) {
        return BT_ERR_UNSUPPORTED;
    }
    status = pool_map_shared(ucx);
    if (status == BT_OK) {
        warm_pool(ucx->kvt);
        memcpy(ucx->kvt->pool + ucx->kvt->config.pool_bytes, ucx->probe,
               sizeof(ucx->probe));
    }
    return status;
}

void bt_kvt_ucx_shm_close(ucx_t *ucx)
{
    ucx->shares = false;
    if (ucx->pool_fd >= 0) {
        bt_kvt_warmer_stop(ucx->kvt->warmer);
        ucx->kvt->warmer = NULL;
        munmap(ucx->kvt->pool, ucx->mapped_bytes);
        ucx->kvt->pool = NULL;
        close(ucx->pool_fd);
        ucx->pool_fd = NO_FD;
    }
}
