/* SPDX-License-Identifier: Apache-2.0 */
/* The worker, under either of its names; PROGRAM_ROLE is the role of the name.
 */
#include "decode_worker/decode.h"
#include "prefill_worker/prefill.h"

int main(int argc, char **argv)
{
    /* Sequences with verified KV may run before a prefill begins. */
    static const bt_worker_ops_t *const ops[BT_WORKER_HANDLERS] = {
        &bt_decode_ops, &bt_prefill_ops};

    return bt_worker_main(PROGRAM_ROLE, ops, argc, argv);
}
