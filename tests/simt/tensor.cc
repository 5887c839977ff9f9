/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/simt/tensor.h"

#include <cmath>

#include "kernels/half.h"
#include "tests/simt/count.h"

namespace simt
{
namespace
{

const unsigned kAllLanes = 0xffffffffu;
const unsigned kM = 16, kN = 8, kK = 16;

/* Lane i is number i / 4 of eight groups, and number i % 4 in its own. */
unsigned group(unsigned lane)
{
    return lane / 4;
}

unsigned in_group(unsigned lane)
{
    return lane % 4;
}

/* Value i of the four of C and D that a lane holds. */
unsigned row_of_sum(unsigned lane, unsigned i)
{
    return group(lane) + ((i < 2) ? 0 : 8);
}

unsigned column_of_sum(unsigned lane, unsigned i)
{
    return 2 * in_group(lane) + i % 2;
}

/* ---- signed bytes ---- */

struct Bytes {
    uint32_t a[2], b;
    int32_t c[4];
};

int32_t byte_of(uint32_t word, unsigned i)
{
    return static_cast<int8_t>((word >> (8 * i)) & 0xff);
}

const char *multiply_bytes(const Lane lanes[kWarp])
{
    int32_t a[kM][kK], b[kK][kN];

    count_product();
    for (unsigned lane = 0; lane < kWarp; lane++) {
        const Bytes *its = static_cast<const Bytes *>(lanes[lane].in);

        for (unsigned i = 0; i < 4; i++) {
            const unsigned k = 4 * in_group(lane) + i;

            a[group(lane)][k] = byte_of(its->a[0], i);
            a[group(lane) + 8][k] = byte_of(its->a[1], i);
            b[k][group(lane)] = byte_of(its->b, i);
        }
    }
    for (unsigned lane = 0; lane < kWarp; lane++) {
        for (unsigned i = 0; i < 4; i++) {
            uint32_t sum = static_cast<uint32_t>(
                static_cast<const Bytes *>(lanes[lane].in)->c[i]);

            for (unsigned k = 0; k < kK; k++) {
                sum += static_cast<uint32_t>(a[row_of_sum(lane, i)][k] *
                                             b[k][column_of_sum(lane, i)]);
            }
            static_cast<int32_t *>(lanes[lane].out)[i] =
                static_cast<int32_t>(sum);
        }
    }
    return nullptr;
}

/* ---- bfloat16 and binary16 ---- */

struct Halves {
    uint32_t a[4], b[2];
    float c[4];
};

/* Number i of a word, by one of half.h. */
template <float Value(uint16_t)> float half_of(uint32_t word, unsigned i)
{
    return Value(static_cast<uint16_t>(word >> (16 * i)));
}

template <float Value(uint16_t)>
const char *multiply_halves(const Lane lanes[kWarp])
{
    float a[kM][kK], b[kK][kN];

    count_product();
    for (unsigned lane = 0; lane < kWarp; lane++) {
        const Halves *its = static_cast<const Halves *>(lanes[lane].in);

        for (unsigned i = 0; i < 2; i++) {
            const unsigned k = 2 * in_group(lane) + i;

            a[group(lane)][k] = half_of<Value>(its->a[0], i);
            a[group(lane) + 8][k] = half_of<Value>(its->a[1], i);
            a[group(lane)][k + 8] = half_of<Value>(its->a[2], i);
            a[group(lane) + 8][k + 8] = half_of<Value>(its->a[3], i);
            b[k][group(lane)] = half_of<Value>(its->b[0], i);
            b[k + 8][group(lane)] = half_of<Value>(its->b[1], i);
        }
    }
    for (unsigned lane = 0; lane < kWarp; lane++) {
        for (unsigned i = 0; i < 4; i++) {
            float sum = static_cast<const Halves *>(lanes[lane].in)->c[i];

            for (unsigned k = 0; k < kK; k++) {
                sum = std::fma(a[row_of_sum(lane, i)][k],
                               b[k][column_of_sum(lane, i)], sum);
            }
            static_cast<float *>(lanes[lane].out)[i] = sum;
        }
    }
    return nullptr;
}

/* ---- from shared memory ---- */

/* Each gets where the rows of all lie. */
const char *tell_rows(const Lane lanes[kWarp])
{
    for (unsigned to = 0; to < kWarp; to++) {
        for (unsigned from = 0; from < kWarp; from++) {
            static_cast<const char **>(lanes[to].out)[from] =
                *static_cast<const char *const *>(lanes[from].in);
        }
    }
    return nullptr;
}

uint32_t half_at(const char *row, unsigned i)
{
    uint16_t half;

    watch(row + 2 * i, sizeof(half), Access::kRead, Space::kShared);
    std::memcpy(&half, row + 2 * i, sizeof(half));
    return half;
}

} // namespace

void mma_s8(int32_t d[4], const uint32_t a[2], uint32_t b, const int32_t c[4],
            int line)
{
    const Bytes in = {{a[0], a[1]}, b, {c[0], c[1], c[2], c[3]}};

    together(kAllLanes, line, multiply_bytes, &in, d);
}

void mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2],
              const float c[4], int line)
{
    const Halves in = {
        {a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]}};

    together(kAllLanes, line, multiply_halves<bt_bf16_to_f32>, &in, d);
}

void mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2],
             const float c[4], int line)
{
    const Halves in = {
        {a[0], a[1], a[2], a[3]}, {b[0], b[1]}, {c[0], c[1], c[2], c[3]}};

    together(kAllLanes, line, multiply_halves<bt_f16_to_f32>, &in, d);
}

/* A word is read by the lane that gets it. */
void load_matrices(uint32_t *r, unsigned n, bool transposed, const void *row,
                   const Place &place)
{
    const unsigned lane = thread_index().x % kWarp;
    const char *mine = static_cast<const char *>(row);
    const char *rows[kWarp];

    if ((lane < 8 * n) && (room_in_shared(row) < 16)) {
        fault("ldmatrix: a row that is not in shared memory");
    }
    if ((lane < 8 * n) && (reinterpret_cast<uintptr_t>(row) % 16 != 0)) {
        fault("ldmatrix: a row that does not begin at a multiple of 16");
    }
    if (lane < 8 * n) {
        count_row(row, place);
    }
    together(kAllLanes, place.line, tell_rows, &mine, rows);
    for (unsigned i = 0; i < n; i++) {
        const unsigned low = 2 * in_group(lane);
        const char *const *matrix = rows + 8 * i;

        r[i] = transposed ? half_at(matrix[low], group(lane)) |
                                half_at(matrix[low + 1], group(lane)) << 16
                          : half_at(matrix[group(lane)], low) |
                                half_at(matrix[group(lane)], low + 1) << 16;
    }
}

} // namespace simt
