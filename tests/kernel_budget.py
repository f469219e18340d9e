#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the resources of every kernel, as ptxas reports them, to a budget file.

  python3 tests/kernel_budget.py --commands build/compile_commands.json [--budget FILE] [--print]

Compiles each .cu file of kernels/ as the build does, for each architecture of the budget whatever
the build's own are, and reads the report. Fails, with the line to paste, for a kernel that uses more
than its line grants or has none, and for a line without a kernel. Each instantiation of a template
is a kernel. Needs nvcc and c++filt, no GPU.

The budget: "toolkit RELEASE", "architectures N...", then a line a kernel:

  registers, one number an architecture; bytes of static shared memory; the kernel
  and, behind it, "| local N: reason" where it may use local memory: the largest of stack frame,
  spilled stores and spilled loads, in bytes. Without it: 0.

Registers are an architecture's own, and ptxas allocates them anew in each release: under another
toolkit they are not compared. The rest is the same on every architecture and is always compared.
Dynamic shared memory is the launcher's and not in the report.

Exit codes: 0 all within the budget, 1 not, or it does not compile, 2 usage or a damaged budget.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# What decides the architectures and the outputs of a compiler command: replaced. With an argument
# of its own, or without one.
PAIRS = ("-o", "-gencode", "-MF", "-MT", "-MQ", "-arch")
SINGLES = re.compile(r"-c$|-MD$|-MMD$|--?gencode=|--generate-code=|--?gpu-architecture=|-arch=")


class Refused(Exception):
    """What the user has to put right."""


def short_name(name):
    """A demangled kernel without namespaces, casts of template arguments and parameters."""
    name = name.replace("(anonymous namespace)::", "")
    name = re.sub(r"\([\w:]+\)(?=-?\d)", "", name)  # "(tandem::Border)0"
    match = re.search(r"(\w+)(<[^(]*>)?\(", re.sub(r"\w+::", "", name))
    return match[1] + (match[2] or "") if match else name


def demangled(names):
    result = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True,
                            check=True)
    return result.stdout.splitlines()


def read_report(text):
    """ptxas' report: {kernel: {"registers", "shared", "local"}}."""
    entries = re.split(r"Compiling entry function '(\w+)' for '\w+'", text)[1:]
    names, kernels = demangled(entries[::2]), {}
    for name, entry in zip(names, entries[1::2]):
        local = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill "
                          r"loads", entry)
        used = re.search(r"Used (\d+) registers", entry)
        if not local or not used:
            raise Refused(f"ptxas' report of {name} is not in a form that this script reads")
        shared = re.search(r"(\d+) bytes smem", entry)
        short = short_name(name)
        if short in kernels:
            raise Refused(f"two kernels are called {short}")
        kernels[short] = {"registers": int(used[1]), "shared": int(shared[1]) if shared else 0,
                          "local": max(int(number) for number in local.groups())}
    return kernels


def report_command(command, architecture):
    """A compiler's command, made to compile to nothing and report, for one architecture."""
    words, kept = iter(shlex.split(command)), []
    for word in words:
        if word in PAIRS:
            next(words)
        elif not SINGLES.match(word):
            kept.append(word)
    return kept + ["-cubin", f"-arch=sm_{architecture}", "-Xptxas=-v", "-o", os.devnull]


def read_commands(path, folder):
    """Entries of a compilation database for the .cu files of a folder, one a file."""
    with open(path, encoding="utf-8") as file:
        entries = {pathlib.Path(entry["file"]).resolve(): entry for entry in json.load(file)}
    found = [entry for source, entry in entries.items()
             if source.suffix == ".cu" and source.parent == folder.resolve()]
    if not found:
        raise Refused(f"{path} names no .cu file of {folder}")
    return found


def compile_all(entries, architectures, jobs):
    """What the kernels of these files use: {architecture: {kernel: use}}."""
    def report(architecture, entry):
        result = subprocess.run(report_command(entry["command"], architecture), capture_output=True,
                                text=True, cwd=entry["directory"], check=False)
        if result.returncode != 0:
            raise Refused(f"{entry['file']} does not compile for sm_{architecture}:\n{result.stderr}")
        return read_report(result.stderr + result.stdout)

    used = {architecture: {} for architecture in architectures}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        reports = [(architecture, pool.submit(report, architecture, entry))
                   for architecture in architectures for entry in entries]
        for architecture, future in reports:
            for kernel, use in future.result().items():
                if kernel in used[architecture]:
                    raise Refused(f"two kernels are called {kernel}")
                used[architecture][kernel] = use
    return used


def toolkit_release(entry):
    """"13.0", of the compiler of an entry."""
    result = subprocess.run([shlex.split(entry["command"])[0], "--version"], capture_output=True,
                            text=True, check=True)
    return re.search(r"release (\d+\.\d+)", result.stdout)[1]


def read_budget(text):
    """(release, architectures, {kernel: {"registers": [...], "shared", "local"}})"""
    release, architectures, kernels = None, [], {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if words[0] == "toolkit" and len(words) == 2:
            release = words[1]
            continue
        if words[0] == "architectures" and len(words) > 1:
            architectures = words[1:]
            continue
        match = re.fullmatch(r"\s*((?:\d+\s+){%d})(\d+)\s+(\w[^|]*?)(?:\s*\| local (\d+): \S.*)?"
                             % len(architectures), line)
        if not match or not architectures or release is None:
            raise Refused(f"line {number} of the budget is none: {line}")
        if match[3] in kernels:
            raise Refused(f"line {number} of the budget is a second one for {match[3]}")
        kernels[match[3]] = {"registers": [int(word) for word in match[1].split()],
                             "shared": int(match[2]), "local": int(match[4] or 0)}
    if not kernels:
        raise Refused("the budget grants no kernel anything")
    return release, architectures, kernels


def budget_line(kernel, uses):
    """The line that grants a kernel what it uses. The reason for local memory is left to write."""
    local = max(use["local"] for use in uses)
    return (" ".join(f"{use['registers']:5}" for use in uses) +
            f" {max(use['shared'] for use in uses):6}  {kernel}" +
            (f" | local {local}: " if local else ""))


def judge(used, budget, architectures, with_registers):
    """One message for each kernel or line that is not as it should be."""
    messages = []
    kernels = sorted(set().union(*used.values()))
    for kernel in kernels:
        uses = [used[architecture].get(kernel) for architecture in architectures]
        if None in uses:
            messages.append(f"{kernel}: not compiled for every architecture of the budget")
            continue
        line = budget_line(kernel, uses)
        if kernel not in budget:
            messages.append(f"{kernel}: has no line in the budget; this grants what it uses:\n{line}")
            continue
        granted, over = budget[kernel], []
        for at, (architecture, use) in enumerate(zip(architectures, uses)):
            limits = {"shared": granted["shared"], "local": granted["local"]}
            if with_registers:
                limits["registers"] = granted["registers"][at]
            over += [f"sm_{architecture} {what} {use[what]} > {limit}"
                     for what, limit in limits.items() if use[what] > limit]
        if over:
            messages.append(f"{kernel}: {', '.join(over)}; this would grant it:\n{line}")
    messages += [f"{kernel}: has a line in the budget and is no kernel: take the line out"
                 for kernel in budget if kernel not in kernels]
    return messages


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commands", required=True, help="compile_commands.json")
    parser.add_argument("--sources", type=pathlib.Path, default=ROOT / "kernels",
                        help="folder of the .cu files (default: kernels)")
    parser.add_argument("--budget", default=ROOT / "tests/gpu/kernel_budget.txt",
                        help="default: tests/gpu/kernel_budget.txt")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (2)")
    parser.add_argument("--print", action="store_true",
                        help="print a line for every kernel, and compare nothing")
    options = parser.parse_args()
    try:
        with open(options.budget, encoding="utf-8") as file:
            release, architectures, budget = read_budget(file.read())
        entries = read_commands(options.commands, options.sources)
    except (OSError, Refused) as error:
        print(f"kernel_budget.py: {error}", file=sys.stderr)
        return 2
    try:
        here = toolkit_release(entries[0])
        used = compile_all(entries, architectures, options.jobs)
    except Refused as error:
        print(f"kernel_budget.py: {error}", file=sys.stderr)
        return 1
    kernels = sorted(set().union(*used.values()))
    if options.print:
        for kernel in kernels:
            print(budget_line(kernel, [used[architecture][kernel] for architecture in architectures]))
        return 0
    messages = judge(used, budget, architectures, here == release)
    for message in messages:
        print(message)
    what = "registers, shared and local memory" if here == release else (
        f"shared and local memory; registers not, which are of CUDA {release}, and this is {here}")
    print(f"{len(kernels)} kernels, sm_{', sm_'.join(architectures)}: {what} compared; "
          f"{len(messages)} wrong")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
