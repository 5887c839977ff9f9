/* SPDX-License-Identifier: Apache-2.0 */
#include "decode_worker/decode.h"

int main(int argc, char **argv)
{
    return bt_worker_main(&bt_decode_ops, argc, argv);
}
