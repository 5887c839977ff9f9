/* SPDX-License-Identifier: Apache-2.0 */
/* The pool's memory, and the pools of others through shared memory. */
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/statvfs.h>

#include "common/base/assert.h"
#include "common/base/hash.h"
#include "common/base/log.h"
#include "kvtransfer/kvt_host.h"
#include "kvtransfer/kvt_pages.h"
#include "kvtransfer/kvt_ucx_priv.h"

void bt_kvt_ucx_shm_unmap(ucx_link_t *ul)
{
    /* Not by force: UCX refuses that without peer-error mode, and the segment
     * of a dead peer stayed mapped. */
    const ucp_request_param_t param = {0};
    ucs_status_ptr_t request;

    if (ul->rkey != NULL) {
        ucp_rkey_destroy(ul->rkey);
        ul->rkey = NULL;
    }
    if (ul->shm_ep != NULL) {
        request = ucp_ep_close_nbx(ul->shm_ep, &param);
        ul->shm_ep = NULL;
        /* Nothing was ever sent on it, so this ends at once; the worker would
         * finish it in any case. */
        while (ucp_worker_progress(ul->ucx->shm) != 0) {
        }
        if (UCS_PTR_IS_PTR(request)) {
            ucp_request_free(request);
        }
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
    ucx_t *ucx = ul->ucx;
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS,
                              .address = info->shm_addr.data};
    void *base = NULL;

    if ((ucx->shm == NULL) || (info->shm_base == 0) ||
        (info->shm_addr.bytes == 0) || (info->shm_rkey.bytes == 0) ||
        !ucx->host_known || !bt_kvt_host_same(&ucx->host, &info->host) ||
        (info->probe_offset < info->pool_bytes)) {
        return BT_ERR_UNSUPPORTED;
    }
    if (ucp_ep_create(ucx->shm, &params, &ul->shm_ep) != UCS_OK) {
        ul->shm_ep = NULL;
        return BT_ERR_UNSUPPORTED;
    }
    if (ucp_ep_rkey_unpack(ul->shm_ep, info->shm_rkey.data, &ul->rkey) !=
        UCS_OK) {
        ul->rkey = NULL;
        goto err;
    }
    if (ucp_rkey_ptr(ul->rkey, info->shm_base, &base) != UCS_OK) {
        goto err;
    }
    /* Identifiers can lie (a copied /etc, a nested container); bytes that the
     * other side wrote cannot. */
    if (memcmp((const uint8_t *)base + info->probe_offset, info->probe,
               sizeof(info->probe)) != 0) {
        goto err;
    }
    link->map = base;
    return BT_OK;

err:
    bt_kvt_ucx_unmap(link);
    return BT_ERR_UNSUPPORTED;
}

uint64_t bt_kvt_ucx_copy(bt_kvt_link_t *link, const bt_hash_piece_t *pieces,
                         uint32_t n_pieces, uint64_t seed)
{
    (void)link;
    return bt_hash64_copy_pieces(pieces, n_pieces, seed);
}

/* ---- the own pool ---- */

uint64_t bt_kvt_ucx_shm_room(void)
{
    struct statvfs fs;

    return (statvfs("/dev/shm", &fs) == 0) ? (uint64_t)fs.f_bavail * fs.f_frsize
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
    } else if ((ucx->kvt->pool != NULL) && (ucx->shm_mem == NULL) &&
               (ucx->kvt->config.memory == BT_KVT_MEMORY_HOST)) {
        munmap(ucx->kvt->pool, ucx->mapped_bytes);
    } else {
        return; /* shared memory: bt_kvt_ucx_shm_close() */
    }
    ucx->kvt->pool = NULL;
}

/** At an address for large pages, unless UCX or the system refuses that. */
static bt_status_t pool_map_shared(ucx_t *ucx)
{
    ucp_mem_map_params_t params = {
        .field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                      UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_FLAGS,
        .address = bt_kvt_pages_reserve(ucx->mapped_bytes),
        .length = ucx->mapped_bytes,
        .flags = UCP_MEM_MAP_ALLOCATE | UCP_MEM_MAP_FIXED};

    if (params.address != NULL) {
        if (ucp_mem_map(ucx->shm_context, &params, &ucx->shm_mem) == UCS_OK) {
            return BT_OK;
        }
        munmap(params.address, ucx->mapped_bytes);
        params.address = NULL;
    }
    params.flags = UCP_MEM_MAP_ALLOCATE;
    if (ucp_mem_map(ucx->shm_context, &params, &ucx->shm_mem) == UCS_OK) {
        return BT_OK;
    }
    ucx->shm_mem = NULL;
    return BT_ERR_NO_MEMORY;
}

/* Without it there are small pages, which is no failure. */
static void warm_pool(bt_kvt_t *kvt)
{
    const bt_kvt_pages_t pages =
        bt_kvt_pages_of(kvt->pool, kvt->config.pool_bytes);

    if ((pages.n > 0) && (bt_kvt_warmer_start(&pages, bt_kvt_pages_ready,
                                              &kvt->warmer) != BT_OK)) {
        BT_LOG_WARN("no thread for the KV pool's large pages");
    }
}

static bt_status_t pool_make_shared(ucx_t *ucx)
{
    ucp_mem_attr_t attr = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    bt_status_t status;

    /* UCX says in lines of its own that there is no room. */
    if ((bt_kvt_ucx_shm_room() < ucx->mapped_bytes) ||
        (pool_map_shared(ucx) != BT_OK)) {
        return BT_ERR_NO_MEMORY;
    }
    if ((ucp_mem_query(ucx->shm_mem, &attr) != UCS_OK) ||
        (ucp_rkey_pack(ucx->shm_context, ucx->shm_mem, &ucx->rkey,
                       &ucx->rkey_bytes) != UCS_OK) ||
        (getrandom(ucx->probe, sizeof(ucx->probe), 0) !=
         (ssize_t)sizeof(ucx->probe))) {
        status = BT_ERR_UNSUPPORTED;
        goto err_mem;
    }
    status = bt_kvt_pages_take(attr.address, ucx->mapped_bytes);
    if (status != BT_OK) {
        goto err_mem;
    }
    ucx->kvt->pool = attr.address;
    warm_pool(ucx->kvt);
    memcpy(ucx->kvt->pool + ucx->kvt->config.pool_bytes, ucx->probe,
           sizeof(ucx->probe));
    return BT_OK;

err_mem:
    ucp_mem_unmap(ucx->shm_context, ucx->shm_mem);
    ucx->shm_mem = NULL;
    return status;
}

bt_status_t bt_kvt_ucx_shm_open(ucx_t *ucx)
{
    static const char *const tls[] = {"posix,self", "sysv,self"};
    bt_status_t status = BT_ERR_UNSUPPORTED;

    if (!ucx->host_known) {
        return status;
    }
    for (size_t i = 0; (i < BT_ARRAY_LEN(tls)) && (status != BT_OK); i++) {
        status = bt_kvt_ucx_context_open("baton-kv-shm", tls[i], NULL,
                                         UCP_FEATURE_RMA, &ucx->shm_context);
    }
    if (status == BT_OK) {
        status = bt_kvt_ucx_worker_open(ucx->shm_context, &ucx->shm);
    }
    if ((status == BT_OK) &&
        (ucp_worker_get_address(ucx->shm, &ucx->shm_addr,
                                &ucx->shm_addr_bytes) != UCS_OK)) {
        ucx->shm_addr = NULL;
        status = BT_ERR_UNSUPPORTED;
    }
    if ((status == BT_OK) && (ucx->kvt->config.memory == BT_KVT_MEMORY_HOST)) {
        status = pool_make_shared(ucx);
    }
    return status;
}

void bt_kvt_ucx_shm_close(ucx_t *ucx)
{
    if (ucx->rkey != NULL) {
        ucp_rkey_buffer_release(ucx->rkey);
        ucx->rkey = NULL;
    }
    if (ucx->shm_addr != NULL) {
        ucp_worker_release_address(ucx->shm, ucx->shm_addr);
        ucx->shm_addr = NULL;
    }
    if (ucx->shm_mem != NULL) {
        bt_kvt_warmer_stop(ucx->kvt->warmer);
        ucx->kvt->warmer = NULL;
        ucp_mem_unmap(ucx->shm_context, ucx->shm_mem);
        ucx->shm_mem = NULL;
        ucx->kvt->pool = NULL;
    }
    if (ucx->shm != NULL) {
        ucp_worker_destroy(ucx->shm);
        ucx->shm = NULL;
    }
    if (ucx->shm_context != NULL) {
        ucp_cleanup(ucx->shm_context);
        ucx->shm_context = NULL;
    }
}
