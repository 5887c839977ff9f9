/* SPDX-License-Identifier: Apache-2.0 */
/** @file packed_pages.h
 *
 * Large pages for a mapped file. The kernels read all weights for each token:
 * by pages of 4 KiB a decode step of one sequence takes 12 % longer, for the
 * processor's prefetcher ends at each and its address is looked up again.
 *
 * A file has large pages where its cache has: if the file system keeps any
 * (ext4 since Linux 6.16, XFS since 5.18, tmpfs) and the mapping that first
 * read it had asked for them. What was written, or read by others, lies in
 * small ones. MADV_COLLAPSE (Linux 6.1) puts them together on tmpfs and a few
 * more; elsewhere they are dropped from the cache and read again.
 */
#ifndef BT_INFERENCE_PACKED_PACKED_PAGES_H
#define BT_INFERENCE_PACKED_PACKED_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/**
 * Map a file read-only where large pages of it can be.
 *
 * @param bytes  Of the file, not 0.
 * @return munmap() it, with as many bytes; NULL: errno says why
 */
void *bt_packed_pages_map(int fd, size_t bytes);

/**
 * Have what of the file is in the cache in large pages, where that can be; the
 * rest comes in them as it is read. Best effort: contents and addresses stay,
 * and what another process has mapped stays as it is. Processes that do it to
 * the same file wait for each other.
 *
 * @param map      Of bt_packed_pages_map(), nothing of it read yet.
 * @param fd       The same file, without anything unwritten in its cache.
 * @param wait_ms  For those others (they hold the file's flock), at most: one
 *                 of them may have been stopped.
 * @return false: that was over, and nothing was done
 */
bool bt_packed_pages_settle(void *map, int fd, size_t bytes, uint64_t wait_ms);

#endif
