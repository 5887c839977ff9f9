/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/modelfile/modelfile.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/config/config.h"
#include "inference/hf/hf.h"

bt_status_t bt_modelfile_open(const char *path, char *why, size_t why_bytes,
                              bt_gguf_t **gguf_p)
{
    struct stat st;
    bt_status_t status;

    if ((stat(path, &st) == 0) && S_ISDIR(st.st_mode)) {
        return bt_hf_open(path, why, why_bytes, gguf_p);
    }
    status = bt_gguf_open(path, why, why_bytes, gguf_p);
    if (status == BT_ERR_NOT_FOUND) {
        const size_t n = strlen(why);

        snprintf(why + n, why_bytes - n, "; ");
        bt_model_hint(path, why + strlen(why), why_bytes - strlen(why));
    }
    return status;
}
