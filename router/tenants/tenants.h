/* SPDX-License-Identifier: Apache-2.0 */
/** @file tenants.h
 *
 * Who asks, and how much of the server is his. With --api-keys a request
 * proves it by a key (keys_file.h); with --tenant-header whoever stands before
 * the server says it in a header, and is believed; otherwise all requests are
 * one tenant's, without a name.
 *
 *     Authorization, x-api-key ──▶ find ──▶ tenant ──▶ limits ──▶ core: weight,
 *        (401)                      │        (429)                 KV share
 *     SIGHUP ─▶ file ─▶ reload ─────┘
 *
 * A tenant lives as long as somebody refers to it: one that leaves the file is
 * found no more, and what it has under way ends as it would have. What stays
 * in the file keeps its count and its bucket, with the new limits.
 *
 * Limits are this router's: with --routers each has its own.
 *
 * Threads: one thread owns all; name and is_named never change, and another
 * thread may read them while it has a reference.
 */
#ifndef BT_ROUTER_TENANTS_TENANTS_H
#define BT_ROUTER_TENANTS_TENANTS_H

#include "common/base/list.h"
#include "common/sched/sched_bucket.h"
#include "common/sched/sched_reject_delay.h"
#include "router/observe/metrics.h"
#include "router/tenants/keys_file.h"

/** Names of the header that are remembered at a time. */
#define BT_TENANTS_MAX_NAMED 256u
#define BT_TENANTS_WHY_BYTES 320

/** Of one that nobody named. */
#define BT_TENANT_PLAIN_NAME "default"

typedef struct bt_tenant {
    bt_list_t link; /**< in bt_tenants_t.all, or by itself when it is gone */
    uint32_t refs;
    char name[BT_TENANT_NAME_BYTES];
    bool is_named; /**< by a key or a header: has a cache space of its own */
    uint64_t id;   /**< nobody else's; 0: the one without a name */
    bt_tenant_limits_t limits;
    uint32_t n_under_way; /**< of its requests, each answer counted */
    bt_sched_bucket_t bucket;
    bt_sched_reject_delay_t pace; /**< of what it is refused */
    uint64_t ended_us, gap_us;    /**< when one ended; how long between two */
    bt_tenant_metrics_t *metrics; /**< NULL: not counted */
} bt_tenant_t;

typedef struct bt_tenants {
    const char *path;                  /**< borrowed; "" = no keys */
    char header[BT_TENANT_NAME_BYTES]; /**< lower case; "" = none says it */
    bt_router_metrics_t *metrics;
    bt_keys_file_t file;
    bt_tenant_t **of_file; /**< owned: a reference each, as file.tenants */
    bt_tenant_t *plain;    /**< owned */
    bt_list_t all; /**< but the plain one; of a header the latest last */
    uint32_t n_named;
    uint64_t next_id;
} bt_tenants_t;

/** @param [in] metrics  borrowed, or NULL
 *  @retval others  of bt_keys_file_read(); logged */
BT_MUST_CHECK bt_status_t bt_tenants_open(bt_tenants_t *tenants,
                                          const char *path, const char *header,
                                          bt_router_metrics_t *metrics,
                                          uint64_t now_us);
/** Also of a zeroed one. Those that are referred to stay. */
void bt_tenants_close(bt_tenants_t *tenants);
/** Read the file again, all or nothing: one that is refused changes nothing.
 *  Logs either. */
void bt_tenants_reload(bt_tenants_t *tenants, uint64_t now_us);
/** Does a request need a key? */
bool bt_tenants_are_keyed(const bt_tenants_t *tenants);
/** Is there more than the one without a name? */
bool bt_tenants_are_many(const bt_tenants_t *tenants);

/** A field of a request's head by its name in lower case; NULL: it has none. */
typedef const char *(*bt_tenants_field_fn)(const void *ctx, const char *name);

/**
 * Whose request is it? The key is in `Authorization: Bearer KEY`, or else in
 * `x-api-key` or `api-key`.
 *
 * @param [out] tenant_p  borrowed; bt_tenant_ref() what is kept
 * @param [out] why_p     otherwise a sentence for the client; static
 * @retval BT_OK
 * @retval BT_ERR_UNAUTHORIZED   401
 * @retval BT_ERR_INVALID_PARAM  400: the header is no name
 * @retval BT_ERR_BUSY           503: too many names at once
 * @retval BT_ERR_NO_MEMORY
 */
BT_MUST_CHECK bt_status_t bt_tenants_find(bt_tenants_t *tenants,
                                          bt_tenants_field_fn field,
                                          const void *ctx,
                                          bt_tenant_t **tenant_p,
                                          const char **why_p);

bt_tenant_t *bt_tenant_ref(bt_tenant_t *tenant);
void bt_tenant_unref(bt_tenant_t *tenant); /**< NULL is allowed */

/* ---- limits ---- */

/** Why not, and when again. */
typedef struct bt_tenant_denial {
    bt_tenant_refusal_t cause;
    uint32_t retry_after_s; /**< at least 1 */
    char message[BT_TENANTS_WHY_BYTES];
} bt_tenant_denial_t;

/** May it have @a n more under way, beside what it has less @a n_mine?
 *  @retval BT_OK, BT_ERR_BUSY (counted) */
BT_MUST_CHECK bt_status_t bt_tenant_check_requests(bt_tenant_t *tenant,
                                                   uint32_t n, uint32_t n_mine,
                                                   bt_tenant_denial_t *denial);
/** May it have so many tokens now?
 *  @retval BT_OK, BT_ERR_BUSY (counted) */
BT_MUST_CHECK bt_status_t bt_tenant_check_tokens(bt_tenant_t *tenant,
                                                 uint64_t n_tokens,
                                                 uint64_t now_us,
                                                 bt_tenant_denial_t *denial);
/** So many more, or fewer, are under way. */
void bt_tenant_begin(bt_tenant_t *tenant, uint32_t n);
void bt_tenant_leave(bt_tenant_t *tenant, uint32_t n);
/** One of them ended as it should: by that others learn when to come again. */
void bt_tenant_note_end(bt_tenant_t *tenant, uint64_t now_us);

/** A header of an answer, of those that OpenAI's have: x-ratelimit-*. */
typedef void (*bt_tenant_header_fn)(void *ctx, const char *name,
                                    const char *value);
/** Those of limits that it has; none of others. */
void bt_tenant_tell_limits(bt_tenant_t *tenant, uint64_t now_us,
                           bt_tenant_header_fn tell, void *ctx);

#endif
