/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/warp.h"

namespace simt
{
namespace
{

struct Brought {
    uint64_t value;
    unsigned from;
};

const char *shuffle_all(const Lane lanes[kWarp])
{
    for (unsigned i = 0; i < kWarp; i++) {
        const Brought *mine = static_cast<const Brought *>(lanes[i].in);

        if (mine == nullptr) {
            continue;
        }
        const void *other = lanes[mine->from % kWarp].in;

        if (other == nullptr) {
            return "a shuffle from a lane that is not in its mask";
        }
        *static_cast<uint64_t *>(lanes[i].out) =
            static_cast<const Brought *>(other)->value;
    }
    return nullptr;
}

const char *ballot_all(const Lane lanes[kWarp])
{
    unsigned votes = 0;

    for (unsigned i = 0; i < kWarp; i++) {
        const bool *mine = static_cast<const bool *>(lanes[i].in);

        votes |= ((mine != nullptr) && *mine) ? 1u << i : 0;
    }
    for (unsigned i = 0; i < kWarp; i++) {
        if (lanes[i].in != nullptr) {
            *static_cast<unsigned *>(lanes[i].out) = votes;
        }
    }
    return nullptr;
}

} // namespace

uint64_t shuffle(unsigned mask, uint64_t brought, unsigned from, int line)
{
    const Brought in = {brought, from};
    uint64_t out = 0;

    together(mask, line, shuffle_all, &in, &out);
    return out;
}

unsigned ballot(unsigned mask, bool brought, int line)
{
    unsigned out = 0;

    together(mask, line, ballot_all, &brought, &out);
    return out;
}

Space space_of(const void *p)
{
    return (room_in_shared(p) > 0) ? Space::kShared : Space::kGlobal;
}

} // namespace simt
