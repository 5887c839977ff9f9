# SPDX-License-Identifier: Apache-2.0
"""What a PromQL expression names: series with their matchers, and the labels it groups by. Whether it is an expression
at all promtool says."""
import re

WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|\[[^\]]*\]|[A-Za-z_:][A-Za-z0-9_:]*|=~|!~|!=|[{}(),=]|\S')
GROUPING = {"by", "without", "on", "ignoring", "group_left", "group_right"}
OPERATORS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
AGGREGATES = {"sum", "min", "max", "avg", "count", "stddev", "stdvar", "group", "topk", "bottomk", "quantile", "count_values"}


def parts_of(expression):
    """@return ([(name, [(label, operator, value)])], {labels of groupings})"""
    words = [w for w in WORDS.findall(expression) if not w.startswith("[")]
    series, labels, i = [], set(), 0
    while i < len(words):
        word, following = words[i], words[i + 1] if i + 1 < len(words) else ""
        i += 1
        if word in GROUPING and following == "(":
            end = words.index(")", i)
            labels.update(w for w in words[i + 1:end] if w != ",")
            i = end + 1
        elif re.match(r"[A-Za-z_:]", word) and word not in GROUPING | OPERATORS | AGGREGATES and (
                following != "(" and not re.fullmatch(r"\d.*", word)):
            matchers = []
            if following == "{":
                end = words.index("}", i)
                inside = [w for w in words[i + 1:end] if w != ","]
                matchers = [(inside[k], inside[k + 1], inside[k + 2][1:-1]) for k in range(0, len(inside), 3)]
                i = end + 1
            series.append((word, matchers))
    return series, labels
