/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_pages.h
 *
 * Large pages for a mapped file. The kernels read all weights for each token:
 * with pages of 4 KiB a decode step of one sequence takes 12 % longer, because
 * the processor's prefetcher stops at each page and each needs an address
 * translation.
 *
 * A file is mapped with large pages where the page cache has them: if the file
 * system supports them (ext4 since Linux 6.16, XFS since 5.18, tmpfs) and the
 * mapping that first read the file had asked for them. Data that was written,
 * or read by others, is in small pages. MADV_COLLAPSE (Linux 6.1) joins them on
 * tmpfs and a few more; elsewhere they are dropped from the cache and read
 * again.
 */
#ifndef BT_INFERENCE_PACKED_PACKED_PAGES_H
#define BT_INFERENCE_PACKED_PACKED_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Maps a file read-only at an address where large pages are possible.
 *
 * @param bytes  bytes of the file, not 0
 * @return pointer for munmap(), with @a bytes; NULL: the reason is in errno
 */
void *bt_packed_pages_map(int fd, size_t bytes);

/**
 * Moves the cached parts of the file to large pages, where possible; the rest
 * is read into large pages later. Best effort: contents and addresses stay, and
 * pages that another process has mapped stay as they are. Processes that do it
 * to one file wait for each other.
 *
 * @param map      Of bt_packed_pages_map(), nothing of it read yet.
 * @param fd       The mapped file, without unwritten data in its cache.
 * @param wait_ms  Most time to wait for other processes (they hold the file's
 *         flock): one of them may be stopped.
 * @return false: that time has passed, and nothing was done
 */
bool bt_packed_pages_settle(void *map, int fd, size_t bytes, uint64_t wait_ms);

#endif
