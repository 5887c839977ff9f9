/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/async.h"

#include <vector>

#include "tests/simt/count.h"

namespace simt
{
namespace
{

struct Copy {
    char *to;
    const char *from;
    unsigned bytes, valid;
    unsigned group;
    char before[16]; /* what was to be copied, when it was asked for */
};

struct Copies {
    std::vector<Copy> under_way; /* the oldest first */
    unsigned n_groups;
};

std::vector<Copies> all; /* by thread of the block */

Copies &mine()
{
    return all[thread_index().x];
}

void bring(const Copy &copy)
{
    if (std::memcmp(copy.from, copy.before, copy.valid) != 0) {
        fault("what an asynchronous copy was to bring has changed under it");
    }
    if (copy.valid > 0) {
        watch(copy.from, copy.valid, Access::kRead, Space::kGlobal);
    }
    await(copy.to, copy.bytes, false);
    watch(copy.to, copy.bytes, Access::kWrite, Space::kShared);
    std::memset(copy.to, 0, copy.bytes);
    std::memcpy(copy.to, copy.before, copy.valid);
}

} // namespace

void copy_async(void *shared, const void *global, unsigned bytes,
                unsigned valid, const Place &place)
{
    Copy copy = {static_cast<char *>(shared),
                 static_cast<const char *>(global),
                 bytes,
                 valid,
                 mine().n_groups,
                 {0}};

    if (((bytes != 4) && (bytes != 8) && (bytes != 16)) || (valid > bytes)) {
        fault_at("an asynchronous copy of bytes:", bytes);
    }
    if ((reinterpret_cast<uintptr_t>(shared) % bytes != 0) ||
        (reinterpret_cast<uintptr_t>(global) % bytes != 0)) {
        fault_at("an asynchronous copy that is not aligned, of bytes:", bytes);
    }
    if ((room_in_shared(shared) < bytes) || (room_in_shared(global) > 0)) {
        fault("an asynchronous copy that is not from global to shared memory");
    }
    count_access(shared, bytes, Access::kWrite, Space::kShared, place);
    /* Nobody may be at work on the room, nor anybody come to it. */
    watch(shared, bytes, Access::kWrite, Space::kShared);
    await(shared, bytes, true);
    std::memset(shared, 0xff, bytes);
    if (valid > 0) {
        count_access(global, bytes, Access::kRead, Space::kGlobal, place);
        watch(global, valid, Access::kRead, Space::kGlobal);
        std::memcpy(copy.before, global, valid);
    }
    mine().under_way.push_back(copy);
}

void copy_commit()
{
    mine().n_groups++;
}

void copy_wait(unsigned n)
{
    Copies &its = mine();
    size_t done = 0;

    while ((done < its.under_way.size()) &&
           (its.under_way[done].group + n < its.n_groups)) {
        bring(its.under_way[done]);
        done++;
    }
    its.under_way.erase(its.under_way.begin(),
                        its.under_way.begin() + static_cast<ptrdiff_t>(done));
}

void copies_begin(unsigned threads)
{
    all.assign(threads, Copies());
}

void copies_end()
{
    if (!mine().under_way.empty()) {
        fault("a thread ends before its asynchronous copies have come");
    }
}

} // namespace simt
