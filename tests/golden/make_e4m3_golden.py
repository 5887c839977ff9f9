#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes e4m3.txt: what PyTorch's float8_e4m3fn makes of all codes and of floats.

Lines, all in hexadecimal:
  c CODE BITS   a code and the binary32 that it is
  r BITS CODE   a binary32 and the code that it is rounded to

PyTorch turns what rounds beyond 448 into a NaN; Baton stores 448, so the floats are limited before the cast. They are
numbers of all exponents, the middles between neighbouring codes, and the floats beside these.

Needs torch. Usage: make_e4m3_golden.py > e4m3.txt
"""
import torch


def bits_of(x):
    return [b & 0xffffffff for b in x.view(torch.int32).tolist()]


def main():
    torch.manual_seed(11)
    codes = torch.arange(256, dtype=torch.int32).to(torch.uint8)
    values = codes.view(torch.float8_e4m3fn).to(torch.float32)
    print(f"# torch {torch.__version__}, float8_e4m3fn")
    for code, bits in zip(codes.tolist(), bits_of(values)):
        print(f"c {code:02x} {bits:08x}")
    finite = values[:127]
    middles = (finite[1:] + finite[:-1]) / 2
    beside = [torch.nextafter(middles, torch.full_like(middles, to)) for to in (0.0, 1e9)]
    random = torch.ldexp(torch.rand(400) + 1, torch.randint(-13, 10, (400,)))
    edges = torch.tensor([0.0, 1e-45, 2.0 ** -126, 2.0 ** -10, 448.0, 463.9, 464.0, 464.1, 1e9, 3e38, torch.inf])
    x = torch.cat([finite, middles, *beside, random, edges])
    x = torch.cat([x, -x])
    rounded = x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    for bits, code in zip(bits_of(x), rounded.tolist()):
        print(f"r {bits:08x} {code:02x}")


if __name__ == "__main__":
    main()
