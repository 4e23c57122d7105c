"""What judging a command line costs: 2 kB of it, as agents write them and as nobody does."""

from __future__ import annotations

import sys
import time
from itertools import cycle, islice

from _measure import Report, median

from penguin.environment.policy.command_policy import CommandPolicy

SIZE = 2_000
TIMES = 300

STEPS = [
    "cd /srv/shop/backend",
    "git fetch --quiet origin main && git diff --stat origin/main...HEAD -- src tests",
    'grep -rn --include="*.py" "def handle_order" src | head -n 20',
    "npm run build -- --mode production 2>&1 | tee build.log | tail -n 40",
    'python -m pytest -q tests/orders -k "refund and not slow" --maxfail=3',
    "sed -n '120,180p' src/orders/service.py",
    'curl -fsS -H "Accept: application/json" http://127.0.0.1:8000/health | python -m json.tool',
    "find src -name '*.orig' -newer setup.cfg -print0 | xargs -0 ls -l",
    "docker compose ps --format json > state.json",
    'mkdir -p out/reports && cp -r templates/. out/reports/ && ls -la "out/reports"',
]

LOOPS = [
    'for file in src/*.ts; do name=$(basename "$file" .ts); echo "$name: $(wc -l < "$file")" >> counts.txt; done',
    'if [ -f "$HOME/.config/shop.toml" ]; then cat "$HOME/.config/shop.toml"; else echo "none" >&2; fi',
    'while read -r line; do [[ $line == *ERROR* ]] && echo "${line#*ERROR}"; done < app.log',
    'test -d "${OUT:-dist}" || mkdir -p "${OUT:-dist}"',
]

PROGRAM = [
    "import json, pathlib",
    "rows = [json.loads(line) for line in pathlib.Path('rows.jsonl').read_text().splitlines()]",
    "for row in rows:",
    "    if row['state'] != \"done\" and row.get('tries', 0) > 3:",
    "        print(f\"{row['id']}: {row['state']} after {row['tries']} tries\")",
]


def filled(parts: list[str], joint: str) -> str:
    """The parts again and again, joined, up to ``SIZE`` characters, whole parts only."""
    taken: list[str] = []
    for part in islice(cycle(parts), SIZE):
        if sum(map(len, taken)) + len(joint) * len(taken) + len(part) > SIZE:
            break
        taken.append(part)
    return joint.join(taken)


LINES = {
    "steps joined by &&": filled(STEPS, " && "),
    "steps, a line each": filled(STEPS, "\n"),
    "loops and conditions": filled(LOOPS, "\n"),
    "a program in a heredoc": "python - <<'EOF'\n" + filled(PROGRAM, "\n") + "\nEOF",
    "a text inside bash -c": "bash -c '" + filled([step.replace("'", '"') for step in STEPS], " && ") + "'",
}


def milliseconds(policy: CommandPolicy, line: str) -> float:
    spent = []
    for _ in range(TIMES):
        before = time.thread_time()
        refusal = policy.refusal(line)
        spent.append(time.thread_time() - before)
        assert refusal is None, refusal
    return median(spent) * 1000


def main() -> int:
    report = Report()
    policy = CommandPolicy()
    policy.refusal("true")
    for name, line in LINES.items():
        report.figure(f"policy: {len(line) / 1000:.1f} kB, {name}", milliseconds(policy, line), "ms CPU", 1.0)
    # Most lines need no syntax tree; these have the name of a rule in them, and do.
    for name in ("steps joined by &&", "loops and conditions"):
        line = f"rm -rf build\n{LINES[name]}"
        report.figure(f"policy: 2.0 kB, {name}, read in full", milliseconds(policy, line), "ms CPU")
    # Nobody writes this, so it has no target; it is here to be seen.
    report.figure("policy: 2.0 kB, a thousand commands of one letter", milliseconds(policy, "a;" * 1000), "ms CPU")
    return report.status


if __name__ == "__main__":
    sys.exit(main())
