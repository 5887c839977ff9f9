#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Usage: embed.py IN OUT: the bytes of IN as C, for reflection.h."""
import sys

with open(sys.argv[1], "rb") as file:
    data = file.read()
with open(sys.argv[2], "w") as file:
    file.write('#include "router/grpc/reflection.h"\n\n')
    file.write("const unsigned char bt_proto_set[] = {\n")
    for at in range(0, len(data), 16):
        file.write(" ".join(f"{b:d}," for b in data[at:at + 16]) + "\n")
    file.write("};\nconst size_t bt_proto_set_bytes = sizeof(bt_proto_set);\n")
