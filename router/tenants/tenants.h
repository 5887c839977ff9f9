/* SPDX-License-Identifier: Apache-2.0 */
/** @file tenants.h
 *
 * Identifies the tenant of a request, and enforces its limits. With --api-keys
 * a request is authenticated by a key (keys_file.h); with --tenant-header a
 * trusted proxy before the server names the tenant in a header; otherwise all
 * requests belong to one tenant without a name.
 *
 *     Authorization, x-api-key ──▶ find ──▶ tenant ──▶ limits ──▶ core: weight,
 *        (401)                      │        (429)                 KV share
 *     SIGHUP ─▶ file ─▶ reload ─────┘
 *
 * A tenant is reference counted: a tenant removed from the file is not found
 * any more, and its running requests finish normally. A tenant that stays in
 * the file keeps its count and its token bucket, with the new limits.
 *
 * Limits are per router: with --routers each router has its own.
 *
 * Threads: one thread owns all; name and is_named never change, and another
 * thread may read them while it has a reference, and ask for and charge time to
 * compile.
 */
#ifndef BT_ROUTER_TENANTS_TENANTS_H
#define BT_ROUTER_TENANTS_TENANTS_H

#include <pthread.h>

#include "common/base/containers.h"
#include "common/sched/sched_admit.h"
#include "router/observe/metrics.h"
#include "router/tenants/keys_file.h"

/** Most tenants named by the header that are kept at a time. */
#define BT_TENANTS_MAX_NAMED 256u
#define BT_TENANTS_WHY_BYTES 320

/** Name of the tenant without a name. */
#define BT_TENANT_PLAIN_NAME "default"

typedef struct bt_tenant {
    bt_list_t link; /**< in bt_tenants_t.all, or unlinked when removed */
    uint32_t refs;
    char name[BT_TENANT_NAME_BYTES];
    bool is_named; /**< by a key or a header: has its own cache namespace */
    uint64_t id;   /**< unique; 0: the tenant without a name */
    bt_tenant_limits_t limits;
    uint32_t n_under_way; /**< running requests; each answer counts */
    bt_sched_bucket_t bucket;
    pthread_mutex_t grammar_lock;     /**< guards grammar_bucket */
    bt_sched_bucket_t grammar_bucket; /**< us of CPU time to compile */
    bt_sched_reject_delay_t pace;     /**< reject delay of its 429 responses */
    uint64_t ended_us, gap_us;        /**< last end, mean time between ends */
    bt_tenant_metrics_t *metrics;     /**< NULL: not counted */
} bt_tenant_t;

typedef struct bt_tenants {
    const char *path;                  /**< borrowed; "" = no keys */
    char header[BT_TENANT_NAME_BYTES]; /**< lower case; "" = not used */
    bt_router_metrics_t *metrics;
    bt_keys_file_t file;
    bt_tenant_t **of_file; /**< owned references, as file.tenants */
    bt_tenant_t *plain;    /**< owned: the tenant without a name */
    bt_list_t all; /**< except the plain one; most recent header name last */
    uint32_t n_named;
    uint64_t next_id;
} bt_tenants_t;

/** Reads the file of keys.
 *  @param [in] metrics  borrowed, or NULL
 *  @retval others  see bt_keys_file_read(); logged */
BT_MUST_CHECK bt_status_t bt_tenants_open(bt_tenants_t *tenants,
                                          const char *path, const char *header,
                                          bt_router_metrics_t *metrics,
                                          uint64_t now_us);
/** Closes all tenants. Tenants with other references stay valid. A zeroed
 *  object is allowed. */
void bt_tenants_close(bt_tenants_t *tenants);
/** Rereads the file, all or nothing: an invalid file changes nothing. Logs the
 *  result. */
void bt_tenants_reload(bt_tenants_t *tenants, uint64_t now_us);
/** True when requests need a key. */
bool bt_tenants_are_keyed(const bt_tenants_t *tenants);
/** True when there are tenants besides the one without a name. */
bool bt_tenants_are_many(const bt_tenants_t *tenants);
/** True when requests may be of a tenant with this name: one of the file of
 *  keys, or any valid name where a header names tenants. */
bool bt_tenants_may_have(const bt_tenants_t *tenants, const char *name);

/** Returns a header field of a request by its lower-case name; NULL: absent. */
typedef const char *(*bt_tenants_field_fn)(const void *ctx, const char *name);

/**
 * Finds the tenant of a request. The key is in `Authorization: Bearer KEY`, or
 * else in `x-api-key` or `api-key`.
 *
 * @param [out] tenant_p  borrowed; keep it with bt_tenant_ref()
 * @param [out] why_p     on failure: a sentence for the client; static
 * @retval BT_OK
 * @retval BT_ERR_UNAUTHORIZED   401
 * @retval BT_ERR_INVALID_PARAM  400: the header is not a valid name
 * @retval BT_ERR_BUSY           503: too many names at once
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_tenants_find(bt_tenants_t *tenants,
                                          bt_tenants_field_fn field,
                                          const void *ctx,
                                          bt_tenant_t **tenant_p,
                                          const char **why_p);

/** Returns the space of a tenant in the store (router/store/store.h): "" for
 *  the one without a name, and for NULL. */
const char *bt_tenant_space(const bt_tenant_t *tenant);
bt_tenant_t *bt_tenant_ref(bt_tenant_t *tenant);
void bt_tenant_unref(bt_tenant_t *tenant); /**< NULL is allowed */

/* ---- limits ---- */

/** Reason for a rejection, and the time of the next try. */
typedef struct bt_tenant_denial {
    bt_tenant_cell_t cause;
    uint32_t retry_after_s; /**< at least 1 */
    char message[BT_TENANTS_WHY_BYTES];
} bt_tenant_denial_t;

/** Checks that a tenant may have @a n more requests running, not counting @a
 *  n_mine of its running ones.
 *  @retval BT_OK, BT_ERR_BUSY (counted) */
BT_MUST_CHECK bt_status_t bt_tenant_check_requests(bt_tenant_t *tenant,
                                                   uint32_t n, uint32_t n_mine,
                                                   bt_tenant_denial_t *denial);
/** Checks that a tenant may use @a n_tokens now.
 *  @retval BT_OK, BT_ERR_BUSY (counted) */
BT_MUST_CHECK bt_status_t bt_tenant_check_tokens(bt_tenant_t *tenant,
                                                 uint64_t n_tokens,
                                                 uint64_t now_us,
                                                 bt_tenant_denial_t *denial);
/*
 * CPU time to compile grammars, within grammar-ms-per-minute. It is known only
 * at the end of a compilation, so one may begin while any time is left, and
 * what it takes beyond that is a debt.
 */
/** True while a tenant may compile. Any thread. */
bool bt_tenant_may_compile(bt_tenant_t *tenant, uint64_t now_us);
/** Charges a compilation, also one that failed or was canceled. Any thread. */
void bt_tenant_charge_compile(bt_tenant_t *tenant, uint64_t cpu_us,
                              uint64_t now_us);
/** Counts a compilation that was denied, and says why. */
void bt_tenant_deny_compile(bt_tenant_t *tenant, uint64_t now_us,
                            bt_tenant_denial_t *denial);
/** Adds @a n running requests; bt_tenant_leave() removes them. */
void bt_tenant_begin(bt_tenant_t *tenant, uint32_t n);
void bt_tenant_leave(bt_tenant_t *tenant, uint32_t n);
/** Records that a request ended normally; used for the Retry-After of
 *  others. */
void bt_tenant_note_end(bt_tenant_t *tenant, uint64_t now_us);

/** Receives a rate-limit header of an answer, as OpenAI's API has them:
 *  x-ratelimit-*. */
typedef void (*bt_tenant_header_fn)(void *ctx, const char *name,
                                    const char *value);
/** Passes the headers of the tenant's configured limits to @a tell; none for
 *  other limits. */
void bt_tenant_tell_limits(bt_tenant_t *tenant, uint64_t now_us,
                           bt_tenant_header_fn tell, void *ctx);

#endif
