# SPDX-License-Identifier: Apache-2.0
"""Checks rules about the text of the sources; prints each violation as FILE:LINE: RULE.

- Direction: kernels <- engine <- models <- bench, tests. A folder includes itself and those before
  it; bench and tests do not include each other. A test may include and compile the files of bench
  that SHARED_WITH_TESTS names, which depend on nothing else there.
- Public headers (.hpp of kernels, engine, models) include this project and the standard library
  only. Headers of the CUDA half, named by --cuda-header, may include the CUDA runtime too.
- No include climbs out of its folder with "..".
- Each source file says its licence on the first line (second, after #!).
"""
import argparse
import pathlib
import re
import sys

MAY_INCLUDE = {
    "kernels": {"kernels"},
    "engine": {"kernels", "engine"},
    "models": {"kernels", "engine", "models"},
    "bench": {"kernels", "engine", "models", "bench"},
    "tests": {"kernels", "engine", "models", "tests"},
}
PUBLIC = ("kernels", "engine", "models")
SHARED_WITH_TESTS = re.compile(
    r"(tandem/)?(bench/)?(chart|comparison|html|png|report_page|result_file)\.(hpp|cpp)$")
CODE = {".cpp", ".hpp", ".cu", ".cuh"}
LICENSED = CODE | {".py", ".sh", ".cmake"}
LICENSE = "SPDX-License-Identifier: Apache-2.0"
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
STANDARD = re.compile(r"^[a-z][a-z0-9_]*$")  # <vector>; C headers by their C++ names
CUDA = re.compile(r"^cuda[a-z_]*\.h$")


def check_include(folder, file, bracket, path, cuda_headers):
    """Returns what is wrong with an include of `path` in `file`, or None."""
    if ".." in pathlib.PurePosixPath(path).parts:
        return f"include climbs with '..': {path}"
    ours = re.match(r"tandem/([^/]+)/", path)
    if ours and ours[1] not in MAY_INCLUDE[folder]:
        if not (folder == "tests" and SHARED_WITH_TESTS.match(path)):
            return f"{folder} includes {ours[1]}: {path}"
    if folder in PUBLIC and file.suffix == ".hpp" and not ours:
        allowed = bracket == "<" and (
            STANDARD.match(path) or (f"{folder}/{file.name}" in cuda_headers and CUDA.match(path)))
        if not allowed:
            return f"public header includes neither ours nor the standard library: {path}"
    return None


def violations(root, cuda_headers):
    checked = 0
    for folder in MAY_INCLUDE:
        for file in sorted((root / folder).rglob("*")):
            if not file.is_file() or not (file.suffix in LICENSED or file.name == "CMakeLists.txt"):
                continue
            checked += 1
            name = file.relative_to(root)
            lines = file.read_text(encoding="utf-8").splitlines()
            licence_line = 1 if lines and lines[0].startswith("#!") else 0
            if len(lines) <= licence_line or LICENSE not in lines[licence_line]:
                yield f"{name}:{licence_line + 1}: no line '{LICENSE}'"
            if file.suffix in CODE:
                for number, line in enumerate(lines, 1):
                    include = INCLUDE.match(line)
                    wrong = include and check_include(folder, file, include[1], include[2],
                                                      cuda_headers)
                    if wrong:
                        yield f"{name}:{number}: {wrong}"
    if checked == 0:
        yield f"{root}: no source file found"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--cuda-header", action="append", default=[], metavar="FOLDER/FILE")
    arguments = parser.parse_args()
    found = list(violations(arguments.root, set(arguments.cuda_header)))
    print("\n".join(found) if found else "no violation")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
