/* SPDX-License-Identifier: Apache-2.0 */
/* A source of the plugin, for the C++ compiler. */
#include "kernels/cuda/lora.cu"
