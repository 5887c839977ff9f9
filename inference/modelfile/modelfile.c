/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/modelfile/modelfile.h"

#include <sys/stat.h>

#include "inference/hf/hf.h"

bt_status_t bt_modelfile_open(const char *path, char *why, size_t why_bytes,
                              bt_gguf_t **gguf_p)
{
    struct stat st;

    return ((stat(path, &st) == 0) && S_ISDIR(st.st_mode))
               ? bt_hf_open(path, why, why_bytes, gguf_p)
               : bt_gguf_open(path, why, why_bytes, gguf_p);
}
