/* SPDX-License-Identifier: Apache-2.0 */
#include "prefill_worker/prefill.h"

int main(int argc, char **argv)
{
    return bt_worker_main(&bt_prefill_ops, argc, argv);
}
