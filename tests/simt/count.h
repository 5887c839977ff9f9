/* SPDX-License-Identifier: Apache-2.0 */
/** @file count.h
 *
 * What hardware would pay for a kernel, by its accesses. A request is one
 * instruction of a warp: what its lanes do on the same line of the source for
 * the same time since the last barrier of the block (the second load of a line
 * with two is the second for every lane). For each kernel, over all launches:
 *
 *     global   requests -> sectors of 32 bytes -> bytes of them that are used
 *                          sectors once: each but once in a launch, what must
 *                          come from memory or go there at the least
 *     shared   requests -> wavefronts, of 32 banks of 4 bytes; lanes that want
 *                          the same word share it; of 8 and 16 bytes a half and
 *                          a quarter of the warp at a time (of 16 a half,
 *                          where lanes in pairs want the same)
 *                          conflicts: wavefronts that a better layout spares
 *
 * Counted when it is switched on here or, with BATON_SIMT_COUNT=path, from the
 * start; then a table goes to that file when the process ends: a line for each
 * kernel, tabs between, names in the first line; and, in path.lines, one for
 * each place of the source in each kernel.
 */
#ifndef BT_TESTS_SIMT_COUNT_H
#define BT_TESTS_SIMT_COUNT_H

#include <string>

#include "tests/simt/machine.h"

namespace simt
{

struct Counts {
    uint64_t launches, blocks, threads;
    uint64_t load_requests, load_sectors, load_bytes, load_sectors_once;
    uint64_t store_requests, store_sectors, store_bytes, store_sectors_once;
    uint64_t shared_requests, wavefronts, conflicts;
    uint64_t atomics;   /* requests that are, among those above */
    uint64_t divergent; /* requests of fewer lanes than the warp began with */
    uint64_t products;  /* of matrices, by warps */
    uint64_t barriers;  /* of blocks */
};

/** Whether to count from now on, whatever the environment says. */
void count(bool on);

/** Of launches under that name (Grid::kernel) so far. */
Counts counts_of(const std::string &kernel);

/* ---- for the machine ---- */

void count_launch(const Grid &grid);
/** @param well  no fault has ended it */
void count_launch_end(bool well);
/** All threads of the block are at a barrier, or at their end. */
void count_epoch(bool barrier);
void count_access(const void *p, size_t bytes, Access access, Space space,
                  const Place &place);
/** ldmatrix: a row is read, whatever its lane gets of it. */
void count_row(const void *p, const Place &place);
void count_product();

} // namespace simt

#endif
