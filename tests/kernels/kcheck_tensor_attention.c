/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/kernels/kcheck.h"

void kc_test_tensor_attention(void)
{
}
