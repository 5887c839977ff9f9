# SPDX-License-Identifier: Apache-2.0
"""What was found: a level, what it is about, one sentence, and the line that fixes it. launcher/preflight.h has the same
forms for ./baton check."""
import json

LEVELS = ("ok", "note", "warning", "problem")


class Findings:
    def __init__(self):
        self.rows = []

    def add(self, level, about, text, fix=None):
        assert level in LEVELS and (fix or level in ("ok", "note")), (level, about, text)
        self.rows.append({"level": level, "about": about, "text": text, "fix": fix})

    def ok(self, about, text):
        self.add("ok", about, text)

    def note(self, about, text, fix=None):
        self.add("note", about, text, fix)

    def warning(self, about, text, fix):
        self.add("warning", about, text, fix)

    def problem(self, about, text, fix):
        self.add("problem", about, text, fix)

    def count(self, level):
        return sum(row["level"] == level for row in self.rows)

    def as_text(self):
        width = max((len(row["about"]) for row in self.rows), default=0)
        lines = []
        for row in self.rows:
            lines.append(f"{row['level']:<8} {row['about']:<{width}}  {row['text']}")
            if row["fix"]:
                lines.append(f"{'':<8} {'':<{width}}  fix: {row['fix']}")
        lines.append("")
        lines.append(", ".join(f"{n} {level}{'s' if n != 1 else ''}" for level in ("problem", "warning")
                               for n in (self.count(level),)))
        return "\n".join(lines) + "\n"

    def as_json(self):
        return json.dumps({"findings": self.rows}, indent=1) + "\n"
