/* SPDX-License-Identifier: Apache-2.0 */
/* UCX under kvtransfer: opening, closing and progress. See kvt_ucx_priv.h. */
#include <dirent.h>
#include <inttypes.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/log.h"
#include "common/base/status.h"
#include "kvtransfer/kvt_stage.h"
#include "kvtransfer/kvt_ucx_priv.h"

#define PROGRESS_ROUNDS 64
#define IDLE_MS         20 /* at most between two rounds of an idle process */
/* A piece and its headers are one segment of UCX's TCP: it is sent to the
 * socket from its place, eagerly, and copied from the receive buffer, which the
 * L2 cache holds, into the pool. UCX's own 8 KiB took twice the time. All
 * processes need equal sizes: one with shorter segments cannot receive. */
#define TCP_PIECE_BYTES (256u << 10)
#define TCP_SEGMENT     "260K"

/* A staged pool receives one piece per record. */
_Static_assert(BT_KVT_STAGE_SLOT_BYTES <= TCP_PIECE_BYTES, "one piece");

/* Put over TCP: with it a process aborts (tcp_ep.c, PUT_TX_WAITING_ACK) when it
 * resumes after a stop during which its peer dropped the connection. */
static const struct {
    const char *name, *value;
} tcp_set[] = {{"TCP_PUT_ENABLE", "n"},
               {"TCP_TX_SEG_SIZE", TCP_SEGMENT},
               {"TCP_RX_SEG_SIZE", TCP_SEGMENT}};
#define TCP_PREFIX "TCP_"

const char *bt_kvt_ucx_version(void)
{
    return ucp_get_version_string();
}

/* True when a transport's settings are known by their full names. */
static bool knows_prefix(uct_component_h component)
{
    uct_md_config_t *md_config;
    uct_iface_config_t *config;
    bool knows = false;
    uct_md_h md;

    if (uct_md_config_read(component, NULL, NULL, &md_config) != UCS_OK) {
        return false;
    }
    if (uct_md_open(component, "tcp", md_config, &md) == UCS_OK) {
        if (uct_md_iface_config_read(md, "tcp", NULL, NULL, &config) ==
            UCS_OK) {
            knows = uct_config_modify(config, tcp_set[0].name,
                                      tcp_set[0].value) == UCS_OK;
            uct_config_release(config);
        }
        uct_md_close(md);
    }
    uct_config_release(md_config);
    return knows;
}

/* UCX 1.13 knows settings of transports without their prefix, 1.18 with it, and
 * both ignore the other name with a warning. @return bytes of the prefix to
 * omit */
static size_t prefix_bytes(void)
{
    uct_component_h *components;
    bool knows = false;
    unsigned n;

    if (uct_query_components(&components, &n) != UCS_OK) {
        return 0;
    }
    for (unsigned i = 0; i < n; i++) {
        uct_component_attr_t attr = {.field_mask =
                                         UCT_COMPONENT_ATTR_FIELD_NAME};

        if ((uct_component_query(components[i], &attr) == UCS_OK) &&
            (strcmp(attr.name, "tcp") == 0)) {
            knows = knows_prefix(components[i]);
        }
    }
    uct_release_component_list(components);
    return knows ? 0 : strlen(TCP_PREFIX);
}

/** Opens a UCX context. @a port: for TCP; 0 = any. @retval BT_ERR_UNSUPPORTED
 */
static bt_status_t context_open(const char *tls, const char *device,
                                uint16_t port, ucp_context_h *context_p)
{
    const ucp_params_t params = {
        .field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME,
        .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
        .name = "baton-kv-net"};
    const bool tcp = strncmp(tls, "tcp", 3) == 0;
    const size_t passed = tcp ? prefix_bytes() : 0;
    char range[16];
    ucp_config_t *config;
    ucs_status_t rc = ucp_config_read(NULL, NULL, &config);

    if (rc != UCS_OK) {
        return BT_ERR_UNSUPPORTED;
    }
    rc = ucp_config_modify(config, "TLS", tls);
    if (rc == UCS_OK) {
        rc = ucp_config_modify(config, "NET_DEVICES", device);
    }
    for (size_t i = 0; tcp && (rc == UCS_OK) && (i < BT_ARRAY_LEN(tcp_set));
         i++) {
        rc = ucp_config_modify(config, tcp_set[i].name + passed,
                               tcp_set[i].value);
    }
    if ((port != 0) && (rc == UCS_OK)) {
        snprintf(range, sizeof(range), "%u-%u", port, port);
        rc = ucp_config_modify(config, &TCP_PREFIX "PORT_RANGE"[passed], range);
    }
    if (rc == UCS_OK) {
        rc = ucp_init(&params, config, context_p);
    }
    ucp_config_release(config);
    return (rc == UCS_OK) ? BT_OK : BT_ERR_UNSUPPORTED;
}

/** Creates a UCX worker. @a *worker_p is NULL after a failure.
 *  @retval BT_ERR_UNSUPPORTED */
static bt_status_t worker_open(ucp_context_h context, ucp_worker_h *worker_p)
{
    const ucp_worker_params_t params = {.field_mask =
                                            UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SINGLE};

    if (ucp_worker_create(context, &params, worker_p) != UCS_OK) {
        *worker_p = NULL;
        return BT_ERR_UNSUPPORTED;
    }
    return BT_OK;
}

/** Finds the network interface of an RDMA device ("mlx5_0:1"): the one entry of
 *  its net folder. @return false when @a device is none */
static bool rdma_interface(const char *device, char *name, size_t cap)
{
    char path[128];
    const int n =
        snprintf(path, sizeof(path), "/sys/class/infiniband/%.*s/device/net",
                 (int)strcspn(device, ":"), device);
    BT_CLEANUP(closedir) DIR *dir = NULL;
    const struct dirent *entry;

    if ((n < 0) || ((size_t)n >= sizeof(path))) {
        return false;
    }
    dir = opendir(path);
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] != '.') {
            snprintf(name, cap, "%.*s", (int)cap - 1, entry->d_name);
            return true;
        }
    }
    return false;
}

/** True when the interface has a link. UCX skips a device that is not running,
 *  with a warning, and can then never reach a peer. */
static bool has_link(const char *interface)
{
    struct ifreq request = {0};
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool running = true; /* if unknown, let UCX try */

    if (fd < 0) {
        return running;
    }
    snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", interface);
    if (ioctl(fd, SIOCGIFFLAGS, &request) == 0) {
        running = ((request.ifr_flags & IFF_UP) != 0) &&
                  ((request.ifr_flags & IFF_RUNNING) != 0);
    }
    close(fd);
    return running;
}

/* The context and its worker, which listens at a port of its own. Of a range
 * one port is given at a time: with several, UCX retries endlessly where all
 * are taken. */
static bt_status_t net_worker_open(ucx_t *ucx, const char *tls,
                                   const char *device)
{
    ucx_ports_t ports = bt_kvt_ucx_ports(ucx);
    bt_status_t status = BT_ERR_UNSUPPORTED;
    uint16_t port = 0;

    while ((status != BT_OK) && bt_kvt_ucx_ports_next(ucx, &ports, &port)) {
        status =
            context_open(tls, device, ucx->tcp ? port : 0, &ucx->net_context);
        if (status != BT_OK) {
            return status;
        }
        status = worker_open(ucx->net_context, &ucx->net);
        if (status != BT_OK) { /* another process took the port meanwhile */
            ucp_cleanup(ucx->net_context);
            ucx->net_context = NULL;
        }
    }
    return status;
}

/* Log why a device cannot be used, where it is known. */
static void complain(const ucx_t *ucx, const char *device)
{
    const bt_kvt_config_t *config = &ucx->kvt->config;

    if (config->first_port != 0) {
        BT_LOG_ERROR("kv transfer: UCX cannot use network device %s, or fewer "
                     "than two ports of --kv-port-range %u-%u are free there",
                     device, config->first_port, config->last_port);
        return;
    }
    BT_LOG_ERROR("kv transfer: UCX cannot use network device %s", device);
}

static bt_status_t net_open(ucx_t *ucx, const char *device)
{
    const bt_kvt_config_t *config = &ucx->kvt->config;
    char interface[IF_NAMESIZE] = "";
    char tls[32];
    const bool rdma = rdma_interface(device, interface, sizeof(interface));
    bt_status_t status;

    if (!rdma) {
        snprintf(interface, sizeof(interface), "%s", device);
    }
    snprintf(ucx->interface, sizeof(ucx->interface), "%s", interface);
    if (if_nametoindex(interface) == 0) {
        BT_LOG_ERROR("kv transfer: no network device %s: %m", device);
        return BT_ERR_UNSUPPORTED;
    }
    if (!has_link(interface)) {
        BT_LOG_DEBUG("kv transfer: network device %s has no link", device);
        return BT_ERR_BUSY;
    }
    if (!rdma && (config->memory == BT_KVT_MEMORY_DEVICE) &&
        (config->device.copier != NULL)) {
        status = bt_kvt_ucx_device_staged(
            ucx, "TCP takes it there in any case, and slots are ours");
        if (status != BT_OK) {
            return status;
        }
    }
    snprintf(tls, sizeof(tls), "%s,self%s", rdma ? "rc,ud" : "tcp",
             (config->memory == BT_KVT_MEMORY_DEVICE) ? ",cuda" : "");
    bt_kvt_ucx_door_before(&ucx->door);
    ucx->tcp = !rdma;
    if ((status = bt_kvt_ucx_own_addr_read(ucx)) != BT_OK ||
        (status = net_worker_open(ucx, tls, device)) != BT_OK ||
        (status = bt_kvt_ucx_handlers_set(ucx)) != BT_OK ||
        (status = bt_kvt_ucx_listener_open(ucx)) != BT_OK) {
        goto err;
    }
    bt_kvt_ucx_door_close(&ucx->door, interface);
    if (ucp_worker_get_efd(ucx->net, &ucx->net_fd) == UCS_OK) {
        return BT_OK;
    }
    status = BT_ERR_UNSUPPORTED;

err:
    complain(ucx, device);
    return status;
}

/** Sets the piece size for data in host memory, slots included: one segment of
 *  TCP. */
static void pieces_set(ucx_t *ucx)
{
    if (ucx->tcp && (ucx->kvt->config.memory != BT_KVT_MEMORY_DEVICE)) {
        ucx->kvt->net_piece_bytes = TCP_PIECE_BYTES;
        ucx->eager_bytes = TCP_PIECE_BYTES;
    }
}

static bt_status_t epoll_open(ucx_t *ucx)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};

    ucx->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if ((ucx->epoll_fd < 0) ||
        (epoll_ctl(ucx->epoll_fd, EPOLL_CTL_ADD, ucx->net_fd, &event) != 0)) {
        BT_LOG_ERROR("kv transfer: cannot create the event descriptor: %m");
        return BT_ERR_IO;
    }
    return BT_OK;
}

/** Opens the pool: one that peers map, or one private to this process. */
static bt_status_t pool_open(ucx_t *ucx)
{
    const bt_kvt_config_t *config = &ucx->kvt->config;
    bt_status_t status;

    if (config->memory != BT_KVT_MEMORY_HOST) {
        ucx->kvt->pool = config->device.pool;
    }
    if (config->memory == BT_KVT_MEMORY_DEVICE) {
        return BT_OK;
    }
    if (config->path == BT_KVT_PATH_NETWORK) {
        return (config->memory == BT_KVT_MEMORY_HOST)
                   ? bt_kvt_ucx_pool_make_anonymous(ucx)
                   : BT_OK;
    }

    status = bt_kvt_ucx_shm_open(ucx);
    if (status == BT_OK) {
        return BT_OK;
    }
    bt_kvt_ucx_shm_close(ucx);
    if (config->memory == BT_KVT_MEMORY_STAGED) {
        BT_LOG_WARN("kv transfer: no shared memory; transfers on this host use "
                    "the network");
        return BT_OK;
    }
    if (config->path == BT_KVT_PATH_SHM) {
        BT_LOG_ERROR("kv transfer: no shared memory for a pool of %zu bytes; "
                     "/dev/shm has %" PRIu64 " left",
                     config->pool_bytes, bt_kvt_ucx_shm_headroom());
        return status;
    }
    BT_LOG_WARN("kv transfer: no shared memory for a pool of %zu bytes, "
                "/dev/shm has %" PRIu64 " left; transfers on this host use the "
                "network",
                config->pool_bytes, bt_kvt_ucx_shm_headroom());
    return bt_kvt_ucx_pool_make_anonymous(ucx);
}

static bt_status_t ucx_open(bt_kvt_t *kvt)
{
    const bt_kvt_config_t *config = &kvt->config;
    const char *device =
        (config->net_device == NULL) ? "lo" : config->net_device;
    ucx_t *ucx = bt_calloc(1, sizeof(*ucx));
    bt_status_t status;

    if (ucx == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    kvt->transport = ucx;
    ucx->kvt = kvt;
    ucx->epoll_fd = NO_FD;
    ucx->net_fd = NO_FD;
    ucx->pool_fd = NO_FD;
    ucx->mapped_bytes = config->pool_bytes + BT_KVT_PROBE_BYTES;
    bt_list_init(&ucx->links);
    bt_list_init(&ucx->requests);
    bt_list_init(&ucx->small_free);
    bt_list_init(&ucx->large_free);
    bt_list_init(&ucx->landing_free);
    bt_list_init(&ucx->asked);
    ucx->host_known = bt_kvt_host_read(&ucx->host) == BT_OK;

    if ((status = net_open(ucx, device)) != BT_OK ||
        (status = epoll_open(ucx)) != BT_OK ||
        ((config->memory == BT_KVT_MEMORY_DEVICE) &&
         (status = bt_kvt_ucx_pool_register_device(ucx)) != BT_OK)) {
        return status;
    }
    pieces_set(ucx);
    return pool_open(ucx);
}

static void free_list_drop(bt_list_t *head)
{
    while (!bt_list_empty(head)) {
        bt_list_t *first = head->next;

        bt_list_remove(first);
        /* The link is the first member of everything listed here. */
        bt_free(first);
    }
}

static void ucx_close(bt_kvt_t *kvt)
{
    ucx_t *ucx = kvt->transport;

    if (ucx == NULL) {
        return;
    }
    kvt->closing = true;
    if (ucx->net != NULL) {
        bt_kvt_ucx_pieces_drop(ucx);
        bt_kvt_ucx_links_close(ucx);
        ucp_worker_destroy(ucx->net);
    }
    bt_kvt_ucx_pool_drop(ucx);
    if (ucx->net_context != NULL) {
        ucp_cleanup(ucx->net_context);
    }
    bt_kvt_ucx_links_free(ucx);
    bt_kvt_ucx_shm_close(ucx);
    if (ucx->epoll_fd >= 0) {
        close(ucx->epoll_fd);
    }
    free_list_drop(&ucx->small_free);
    free_list_drop(&ucx->large_free);
    free_list_drop(&ucx->landing_free);
    bt_kvt_ucx_door_fini(&ucx->door);
    bt_free(ucx->inbox);
    bt_free(ucx);
    kvt->transport = NULL;
}

static void ucx_describe(bt_kvt_t *kvt, bt_kvt_export_info_t *info_p)
{
    const ucx_t *ucx = kvt->transport;

    info_p->host = ucx->host;
    info_p->net_addr.data = &ucx->net_addr;
    info_p->net_addr.bytes = (ucx->net_addr.ss_family == AF_INET)
                                 ? sizeof(struct sockaddr_in)
                                 : sizeof(struct sockaddr_in6);
    info_p->sources.data = ucx->door.own;
    info_p->sources.bytes = ucx->door.n_own * BT_KVT_SOURCE_BYTES;
    if (ucx->pool_fd < 0) {
        return;
    }
    info_p->shm_base = (uint64_t)(uintptr_t)kvt->pool;
    info_p->probe_offset = kvt->config.pool_bytes;
    memcpy(info_p->probe, ucx->probe, sizeof(ucx->probe));
    info_p->shm_file = (bt_kvt_blob_t){.data = &ucx->pool_file,
                                       .bytes = sizeof(ucx->pool_file)};
}

/* ---- progress ---- */

static bool ucx_progress(bt_kvt_t *kvt, uint64_t now_ms)
{
    ucx_t *ucx = kvt->transport;
    const uint64_t since_ms = now_ms - ucx->watched_ms;
    /* While this process does not run, no peer can authenticate. */
    const uint64_t part_ms = kvt->config.dead_ms / 16;
    const uint64_t most_ms = (part_ms > IDLE_MS) ? part_ms : IDLE_MS;
    unsigned more = 1;

    ucx->ran_ms += (since_ms < most_ms) ? since_ms : most_ms;
    bt_kvt_ucx_pieces_take(ucx);
    for (int i = 0;
         (i < PROGRESS_ROUNDS) && (more != 0) && !bt_kvt_stage_full(kvt); i++) {
        more = ucp_worker_progress(ucx->net);
        bt_kvt_ucx_pieces_take(ucx);
    }
    bt_kvt_ucx_requests_accept(ucx);
    bt_kvt_ucx_inbox_take(ucx);
    if (now_ms != ucx->watched_ms) {
        bt_kvt_ucx_unproven_end(ucx);
    }
    if (ucx->some_failed) {
        bt_kvt_ucx_failed_report(ucx);
    }
    if (now_ms != ucx->watched_ms) { /* a system call: not in every round */
        ucx->watched_ms = now_ms;
        bt_kvt_ucx_ended_report(ucx);
    }
    return more != 0;
}

static int ucx_fd(const bt_kvt_t *kvt)
{
    const ucx_t *ucx = kvt->transport;

    return ucx->epoll_fd;
}

static bt_status_t ucx_arm(bt_kvt_t *kvt)
{
    ucx_t *ucx = kvt->transport;

    if (ucx->some_failed || (ucx->inbox_bytes > 0) ||
        !bt_list_empty(&ucx->requests)) {
        return BT_INPROGRESS;
    }
    return (ucp_worker_arm(ucx->net) == UCS_OK) ? BT_OK : BT_INPROGRESS;
}

const bt_kvt_transport_t bt_kvt_transport_ucx = {
    .id = BT_KVT_TRANSPORT_UCX,
    .open = ucx_open,
    .close = ucx_close,
    .describe = ucx_describe,
    .admit = bt_kvt_ucx_admit,
    .connect = bt_kvt_ucx_connect,
    .locate = bt_kvt_ucx_locate,
    .disconnect = bt_kvt_ucx_disconnect,
    .forget = bt_kvt_ucx_forget,
    .map = bt_kvt_ucx_map,
    .unmap = bt_kvt_ucx_unmap,
    .watch = bt_kvt_ucx_watch,
    .send = bt_kvt_ucx_send,
    .send_data = bt_kvt_ucx_send_data,
    .copy = bt_kvt_ucx_copy,
    .progress = ucx_progress,
    .fd = ucx_fd,
    .arm = ucx_arm,
};
