/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's health service: the whole server as "", and under the name of the
 * inference service. */
#include <health.pb-c.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "router/grpc/gdoor_priv.h"

typedef Grpc__Health__V1__HealthCheckRequest request_t;
typedef Grpc__Health__V1__HealthCheckResponse response_t;
typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus status_t;

#define SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING \
    GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING
#define UNKNOWN_SERVICE \
    GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVICE_UNKNOWN

/* An open Watch call, notified of every change. */
typedef struct watch {
    bt_list_t link; /* in door->watches */
    bt_gcall_t *call;
    bool known; /* true: a service of this server */
    status_t sent;
} watch_t;

static status_t status_now(const bt_gdoor_t *door)
{
    return bt_frontend_ready(door->front) ? SERVING : NOT_SERVING;
}

static bool is_ours(const request_t *request)
{
    return (request->service[0] == '\0') ||
           (strcmp(request->service, "inference.GRPCInferenceService") == 0);
}

void bt_health_check(bt_gcall_t *call, void *request)
{
    const bt_gdoor_t *door = bt_gcall_ctx(call);
    response_t answer = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    if (!is_ours(request)) {
        bt_gcall_end(call, BT_GRPC_NOT_FOUND, "no service of this name");
        return;
    }
    door->front->ready_asked_ms = bt_now_ms();
    answer.status = status_now(door);
    bt_gdoor_answer(call, &answer.base);
}

static bool send_status(watch_t *watch, status_t status)
{
    response_t answer = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;

    watch->sent = status;
    answer.status = status;
    return bt_gdoor_send(watch->call, &answer.base);
}

void bt_health_watch(bt_gcall_t *call, void *request)
{
    bt_gdoor_t *door = bt_gcall_ctx(call);
    watch_t *watch = bt_calloc(1, sizeof(*watch));

    if (watch == NULL) {
        bt_gcall_end(call, BT_GRPC_UNAVAILABLE, "out of memory");
        return;
    }
    watch->call = call;
    watch->known = is_ours(request);
    bt_list_push_back(&door->watches, &watch->link);
    bt_gcall_set_user(call, watch);
    (void)send_status(watch, watch->known ? status_now(door) : UNKNOWN_SERVICE);
}

void bt_health_watch_gone(bt_gcall_t *call)
{
    watch_t *watch = bt_gcall_user(call);

    if (watch != NULL) {
        bt_list_remove(&watch->link);
        bt_free(watch);
        bt_gcall_set_user(call, NULL);
    }
}

/* Notified once of the shutdown: watchers must not delay it. */
static void end_watch(watch_t *watch)
{
    bt_gcall_t *call = watch->call;

    if (!send_status(watch, NOT_SERVING)) {
        return; /* the call is over */
    }
    bt_health_watch_gone(call);
    bt_gcall_end(call, BT_GRPC_OK, NULL);
}

void bt_gdoor_tick(bt_gdoor_t *door)
{
    const status_t now =
        bt_list_empty(&door->watches) ? NOT_SERVING : status_now(door);

    BT_LIST_FOR_EACH_ENTRY(watch_t, watch, &door->watches, link) {
        if (door->front->draining) {
            end_watch(watch);
        } else if (watch->known) {
            /* Repeated checks delay the shutdown, and so does Watch. */
            door->front->ready_asked_ms = bt_now_ms();
            if (watch->sent != now) {
                (void)send_status(watch, now);
            }
        }
    }
}
