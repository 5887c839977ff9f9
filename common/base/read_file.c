/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/read_file.h"

#include <errno.h>
#include <unistd.h>

bt_status_t bt_read_file(int fd, void *data, size_t max_bytes, size_t *n_p)
{
    size_t n = 0;

    while (n <= max_bytes) {
        const ssize_t got = read(fd, (char *)data + n, max_bytes + 1 - n);

        if ((got < 0) && (errno != EINTR)) {
            return BT_ERR_IO;
        }
        if (got == 0) {
            break;
        }
        n += (got > 0) ? (size_t)got : 0;
    }
    *n_p = n;
    return BT_OK;
}
