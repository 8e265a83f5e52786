"""Shows that the evaluation guards the pipeline: four faults, each built into a copy of the sources, must make it fail.

    python check_faults.py [--count 32] [--only guidance]

The copy and its build stand in build/faults; the sources themselves are never touched. First the copy without a fault
has to pass, then each fault has to miss a requirement. Takes a few minutes, most of them compiling.
"""

import argparse
import filecmp
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPY = ROOT / "build/faults"
COSMOS3 = "src/mstar/models/cosmos3/"
# name, file, the text that is right, and what a slip of the pen would make of it
FAULTS = [
    (
        "scheduler",  # a step that takes the next sigma for its own
        COSMOS3 + "scheduler.cc",
        "combine(stream, {{1.0F, sample}, {-sigma, velocity}}, x0);",
        "combine(stream, {{1.0F, sample}, {-next, velocity}}, x0);",
    ),
    (
        "guidance",  # the branches swapped
        COSMOS3 + "guidance.h",
        "combine(stream, {{1.0F - scale, other}, {scale, own}}, own);",
        "combine(stream, {{scale, other}, {1.0F - scale, own}}, own);",
    ),
    (
        "vae_cache",  # every chunk begins without history
        COSMOS3 + "vae_blocks.cc",
        "  history = last_frames(stream, history, x, 2, true);\n  return out;",
        "  history = Tensor();\n  return out;",
    ),
    (
        "position",  # media one row lower than where they were trained
        COSMOS3 + "packing.cc",
        "row[index] = static_cast<float>(cell / grid.columns);",
        "row[index] = static_cast<float>(cell / grid.columns + 1);",
    ),
]


def refresh(source, copy):
    """Copies what differs, with the time of now: an old time would let the build believe that nothing changed."""
    if not pathlib.Path(copy).exists() or not filecmp.cmp(source, copy, shallow=False):
        shutil.copy(source, copy)


def build():
    if not (COPY / "build/dev/build.ninja").exists():
        subprocess.run(["cmake", "--preset", "dev", "-DBUILD_TESTING=OFF"], cwd=COPY, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["ninja", "-C", COPY / "build/dev", "mstar"], check=True, stdout=subprocess.DEVNULL)


def passes(count):
    """Whether the copy's server reaches what the evaluation requires of the shipped model."""
    command = [sys.executable, "evaluate.py", "--mstar", COPY / "build/dev/bin/mstar", "--checkpoint", ROOT / "models/shapes"]
    done = subprocess.run([*command, "--count", str(count), "--require", "shipped"], cwd=pathlib.Path(__file__).parent, capture_output=True, text=True)
    missed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    if done.returncode not in (0, 1) or (done.returncode == 1) != bool(missed):
        raise SystemExit(f"the evaluation itself broke:\n{done.stdout}{done.stderr}")
    return missed


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--count", type=int, default=32)
    p.add_argument("--only", choices=[f[0] for f in FAULTS])
    a = p.parse_args()
    COPY.mkdir(parents=True, exist_ok=True)
    for part in ("src", "cmake", "bench", "tools", "CMakeLists.txt", "CMakePresets.json"):
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, COPY / part, dirs_exist_ok=True, copy_function=refresh)
        else:
            refresh(ROOT / part, COPY / part)
    build()
    missed = passes(a.count)
    print("no fault:", "passes" if not missed else f"fails, so nothing can be said: {missed}", flush=True)
    unnoticed = []
    for name, file, right, wrong in FAULTS if not missed else ():
        if a.only not in (None, name):
            continue
        text = (ROOT / file).read_text()
        if text.count(right) != 1:
            raise SystemExit(f"{file} does not hold the line that the fault {name} changes; bring it up to date")
        (COPY / file).write_text(text.replace(right, wrong))
        build()
        found = passes(a.count)
        print(f"{name}: {'; '.join(found) if found else 'NOT NOTICED'}", flush=True)
        if not found:
            unnoticed.append(name)
        (COPY / file).write_text(text)
    sys.exit(1 if missed or unnoticed else 0)


if __name__ == "__main__":
    main()
