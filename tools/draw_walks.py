#!/usr/bin/env python3
"""Writes docs/cosmos3_walks.md: the walk graphs of Cosmos3, drawn by `mstar inspect --walks`.

    tools/draw_walks.py [--mstar build/dev/bin/mstar] [--check]

--check writes nothing and fails when the file is not what the program draws now.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CHECKPOINTS = ROOT / "tests/golden/cosmos3/checkpoints"
TARGET = ROOT / "docs/cosmos3_walks.md"

HEAD = """# Walks of Cosmos3

Drawn by the program: `tools/draw_walks.py` writes this file, `--check` holds it against the program. A request is a
sequence of walks; [cosmos3.md](cosmos3.md) says which one follows which. Boxes are loops, dotted edges lead into the next
iteration, thick ones are streams between partitions.

"""


def walks_of(mstar, checkpoint):
    """Sections of the drawing by their title, in order."""
    command = [str(mstar), "inspect", str(CHECKPOINTS / checkpoint), "--walks"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (part.strip("\n") for part in parts[2::2])))


def draw(mstar):
    nano = walks_of(mstar, "nano")
    lines = [HEAD + "## With sound and actions (Nano, Super)\n"]
    lines += [f"### {name}\n\n{drawing}\n" for name, drawing in nano.items()]
    for title, checkpoint in (("Edge differs", "edge"), ("distilled checkpoints differ", "distilled")):
        others = walks_of(mstar, checkpoint)
        fresh = {name: drawing for name, drawing in others.items() if nano.get(name) != drawing}
        lacks = [name for name in nano if name not in others and name != "partitions"]
        lines.append(f"## Where {title}\n")
        if lacks:
            lines.append("Not there: " + ", ".join(f"`{name}`" for name in lacks) + ".\n")
        lines += [f"### {name} ({checkpoint})\n\n{drawing}\n" for name, drawing in fresh.items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mstar", type=pathlib.Path, default=ROOT / "build/dev/bin/mstar")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    text = draw(arguments.mstar)
    if not arguments.check:
        TARGET.write_text(text)
    elif not TARGET.exists() or TARGET.read_text() != text:
        sys.exit(f"{TARGET.relative_to(ROOT)} is not what the program draws; run tools/draw_walks.py")


if __name__ == "__main__":
    main()
