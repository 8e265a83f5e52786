#!/usr/bin/env python3
"""Fails when docs/seed_api.md names a file, a C++ name or a test that does not exist.

Rows: documented names | `Class::member` | `header` | `file: Test`, … Headers and C++ tests are
under src/mstar, recorded cases under tests/.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs/seed_api.md"


def source(name: str) -> pathlib.Path:
    return ROOT / name if name.startswith("tests/") else ROOT / "src/mstar" / name


def has_word(path: pathlib.Path, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", path.read_text()) is not None


def check_test(path: pathlib.Path, name: str) -> bool:
    text = path.read_text()
    if path.suffix == ".json":
        return f'"{name}"' in text
    return re.search(rf"^TEST(_F|_P)?\(\w+, {re.escape(name)}\)", text, re.M) is not None


def problems_of(cells: list[str]) -> list[str]:
    documented, cpp, header, tests = cells
    name, path = cpp.strip("`"), source(header.strip("`"))
    if not path.is_file():
        return [f"{documented}: no file {header}"]
    found = [f"{documented}: {header} has no {word}"
             for word in name.split("::") if not has_word(path, word)]
    listed = re.findall(r"`([^`:]+): ([^`]+)`", tests)
    if not listed:
        found.append(f"{documented}: names no test")
    for file, test in listed:
        if not source(file).is_file():
            found.append(f"{documented}: no file {file}")
        elif not check_test(source(file), test):
            found.append(f"{documented}: {file} has no test {test}")
    return found


def main() -> int:
    rows, problems = 0, []
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if line.startswith("| `") and len(cells) == 4:
            rows += 1
            problems += problems_of(cells)
        elif line.startswith("| `"):
            problems.append(f"not four cells: {line}")
    if rows == 0:
        problems.append("no rows")
    print("\n".join(problems) if problems else f"{rows} rows, all there")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
