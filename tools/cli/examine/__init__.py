# SPDX-License-Identifier: Apache-2.0
"""What ./baton doctor looks at, a room of questions in each file. Each has functions that take a `Machine` and a
`Findings`; machine.py says where things are read, findings.py what is made of them."""
