/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/kv_transfer_log.h"

#include "router/watch/write.h"

void bt_kv_transfer_log_add(bt_kv_transfer_log_t *handovers,
                            const bt_handover_t *one)
{
    handovers->ring[handovers->n_ever++ % BT_HANDOVERS_KEPT] = *one;
}

static void write_one(const bt_handover_t *one, bt_json_t *json)
{
    static const char *const phases[] = {
        [BT_HANDOVER_BEGUN] = "begun",
        [BT_HANDOVER_ENDED] = "ended",
        [BT_HANDOVER_GIVEN_UP] = "failed",
    };

    bt_json_object(json, NULL);
    bt_json_u64(json, "unix_ms", one->unix_ms);
    bt_json_str(json, "phase", phases[one->phase]);
    bt_write_id(json, "request", one->request);
    bt_json_str(json, "model", one->model);
    bt_json_str(json, "from", one->from);
    bt_json_str(json, "to", one->to);
    if (one->phase == BT_HANDOVER_ENDED) {
        bt_json_u64(json, "bytes", one->bytes);
        bt_write_ms(json, "length_ms", one->length_us);
    } else {
        bt_json_null(json, "bytes");
        bt_json_null(json, "length_ms");
    }
    bt_json_end_object(json);
}

void bt_kv_transfer_log_write(const bt_kv_transfer_log_t *handovers,
                              uint64_t n_seen, bt_json_t *json)
{
    uint64_t first = (handovers->n_ever > BT_HANDOVERS_KEPT)
                         ? handovers->n_ever - BT_HANDOVERS_KEPT
                         : 0;

    first = (n_seen > first) ? n_seen : first;
    bt_json_u64(json, "left_out", first - n_seen);
    bt_json_array(json, "list");
    for (uint64_t i = first; i < handovers->n_ever; i++) {
        write_one(&handovers->ring[i % BT_HANDOVERS_KEPT], json);
    }
    bt_json_end_array(json);
}
