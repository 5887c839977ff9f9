/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin of kernels/cuda under a name of its own: --backend cuda_sim, found
 * by BATON_PLUGIN_DIR alone. */
#include "kernels/cuda/cuda.h"

extern "C" BT_CUDA_EXPORT bt_status_t
bt_cuda_sim_backend_open(const bt_backend_config_t *config, bt_backend_t **be_p)
{
    return bt_cuda_backend_open(config, be_p);
}
