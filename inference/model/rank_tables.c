/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/rank_tables.h"

/* Message of rank 0 about the second communicator. */
typedef struct place {
    uint8_t id[BT_COLLECTIVES_ID_BYTES];
    uint8_t ok;
} place_t;

bool bt_rank_tables_can(const bt_backend_t *be)
{
    return !bt_backend_owns_memory(be) || (be->ops->collectives_open != NULL);
}

static bt_status_t open_among(bt_backend_t *be, const bt_collectives_t *host,
                              bt_collectives_t **made_p)
{
    place_t place = {.ok = 0};
    bt_status_t made = BT_OK;
    bt_status_t status;

    if (host->rank == 0) {
        made = be->ops->collectives_id(be, place.id);
        place.ok = made == BT_OK; /* the others wait for it in any case */
    }
    status = host->broadcast(host->ctx, &place, sizeof(place), 0);
    if (status != BT_OK) {
        return status;
    }
    if (place.ok == 0) {
        return (made != BT_OK) ? made : BT_ERR_PEER_LOST;
    }
    return be->ops->collectives_open(be, host->rank, host->size, place.id,
                                     made_p);
}

bt_status_t bt_rank_tables_open(bt_backend_t *be, const bt_collectives_t *host,
                                const bt_collectives_t *host_stage,
                                bt_rank_tables_t *tables_p)
{
    bt_rank_tables_t tables = {.host = host,
                               .host_stage = host_stage,
                               .buffers = host,
                               .buffers_stage = host_stage,
                               .be = be};
    bt_status_t status = BT_OK;

    if (bt_backend_owns_memory(be)) {
        status = open_among(be, host, &tables.made);
        tables.buffers = tables.made;
        tables.buffers_stage = (host_stage == host) ? tables.made : NULL;
        if ((status == BT_OK) && (host_stage != NULL) && (host_stage != host)) {
            status = open_among(be, host_stage, &tables.made_stage);
            tables.buffers_stage = tables.made_stage;
        }
    }
    if (status != BT_OK) {
        bt_rank_tables_close(&tables);
        return status;
    }
    *tables_p = tables;
    return BT_OK;
}

void bt_rank_tables_close(bt_rank_tables_t *tables)
{
    if (tables->made_stage != NULL) {
        tables->be->ops->collectives_close(tables->made_stage);
    }
    if (tables->made != NULL) {
        tables->be->ops->collectives_close(tables->made);
    }
    *tables = (bt_rank_tables_t){0};
}
