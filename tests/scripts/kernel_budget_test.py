# SPDX-License-Identifier: Apache-2.0
"""tests/kernel_budget.py on stored reports and, where there is one, on planted kernels and the compiler.

usage: kernel_budget_test.py [--nvcc NVCC] [unittest options]
"""
import argparse
import importlib.util
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "kernel_budget.py"
SPEC = importlib.util.spec_from_file_location("kernel_budget", SCRIPT)
kernel_budget = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(kernel_budget)

NVCC = None

REPORT = '''ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN6tandem4cuda39_GLOBAL__N__adc1c599_7_cast_cu_6cf7898411cast_kernelILi4EfNS_4bf16EEEvPKT0_PT1_l' for 'sm_90'
ptxas info    : Function properties for _ZN6tandem4cuda39_GLOBAL__N__adc1c599_7_cast_cu_6cf7898411cast_kernelILi4EfNS_4bf16EEEvPKT0_PT1_l
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 28 registers, used 0 barriers
ptxas info    : Compile time = 5.1 ms
ptxas info    : Compiling entry function '_ZN6tandem4cuda11tail_kernelEPf' for 'sm_90'
ptxas info    : Function properties for _ZN6tandem4cuda11tail_kernelEPf
    16 bytes stack frame, 24 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 544 bytes smem
'''

BUDGET = '''# comment
toolkit 13.0
architectures 80 90
   27    28      0  cast_kernel<4, float, bf16>
  250   255    544  tail_kernel | local 24: 256 sums a thread do not fit
'''

PLANTED = '''
namespace tandem::cuda {
namespace {
template <int N>
__global__ void local_kernel(float* x, const int* at) {
  float values[N];  // indexed at run time, so that they cannot be registers
  for (int i = 0; i < N; ++i) values[i] = x[i * N];
  for (int i = 0; i < N; ++i) values[at[i]] += 1.0f;
  for (int i = 0; i < N; ++i) x[i] = values[at[i]];
}
__global__ void shared_kernel(float* x) {
  __shared__ float values[64];
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = values[63 - threadIdx.x];
}
}  // namespace
void launch(float* x, const int* at) {
  local_kernel<16><<<1, 1>>>(x, at);
  shared_kernel<<<1, 64>>>(x);
}
}  // namespace tandem::cuda
'''


def use(registers=28, shared=0, local=0):
    return {"registers": registers, "shared": shared, "local": local}


class KernelBudget(unittest.TestCase):
    def judge(self, kernel, *uses, with_registers=True):
        """What is said of one kernel where the other is as budgeted."""
        _, architectures, budget = kernel_budget.read_budget(BUDGET)
        used = {"80": {"tail_kernel": use(250, 544, 24)}, "90": {"tail_kernel": use(255, 544, 24)}}
        for architecture, one in zip(architectures, uses):
            used[architecture][kernel] = one
        return kernel_budget.judge(used, budget, architectures, with_registers)

    def test_report(self):
        self.assertEqual(kernel_budget.read_report(REPORT), {
            "cast_kernel<4, float, bf16>": use(28), "tail_kernel": use(255, 544, 24)})

    def test_report_in_another_form_is_refused(self):
        for damaged in (REPORT.replace("Used", "Takes"), REPORT.replace("spill loads", "reloads")):
            with self.assertRaisesRegex(kernel_budget.Refused, "not in a form"):
                kernel_budget.read_report(damaged)

    def test_kernels_of_one_name_are_refused(self):
        with self.assertRaisesRegex(kernel_budget.Refused, "two kernels are called tail_kernel"):
            kernel_budget.read_report(REPORT + REPORT[REPORT.rindex("ptxas info    : Compiling"):])

    def test_names(self):
        space = "tandem::cuda::(anonymous namespace)::"
        for name, short in (
                (f"void {space}warp_kernel<tandem::bf16, 7, ({space}Source)2>({space}Parameters, "
                 "tandem::bf16*)", "warp_kernel<bf16, 7, 2>"),
                (f"{space}crop_kernel({space}Pictures, unsigned char const*)", "crop_kernel"),
                (f"void {space}move_kernel<uint4>(tandem::ImageShape, uint4 const*)",
                 "move_kernel<uint4>")):
            self.assertEqual(kernel_budget.short_name(name), short)

    def test_command(self):
        command = ("nvcc -I/x -O3 --generate-code=arch=compute_90,code=[compute_90,sm_90] -gencode "
                   "arch=compute_80,code=sm_80 -std=c++17 -MD -MT a.o -MF a.d -x cu -c /x/a.cu -o a.o")
        self.assertEqual(" ".join(kernel_budget.report_command(command, "80")),
                         "nvcc -I/x -O3 -std=c++17 -x cu /x/a.cu -cubin -arch=sm_80 -Xptxas=-v "
                         "-o /dev/null")

    def test_within_the_budget(self):
        self.assertEqual(self.judge("cast_kernel<4, float, bf16>", use(27), use(20)), [])

    def test_more_than_the_budget(self):
        for what, over in (("sm_90 registers 29 > 28", use(29)), ("sm_90 shared 4 > 0", use(shared=4)),
                           ("sm_90 local 8 > 0", use(local=8))):
            (message,) = self.judge("cast_kernel<4, float, bf16>", use(27), over)
            self.assertTrue(message.startswith(f"cast_kernel<4, float, bf16>: {what};"), message)

    def test_kernel_without_a_line_and_line_without_a_kernel(self):
        new, gone = self.judge("new_kernel<2>", use(27, 8), use(31, 16))
        self.assertTrue(new.startswith("new_kernel<2>: has no line"), new)
        self.assertTrue(gone.startswith("cast_kernel<4, float, bf16>: has a line"), gone)
        pasted = BUDGET + new.splitlines()[-1]
        self.assertEqual(kernel_budget.read_budget(pasted)[2]["new_kernel<2>"],
                         {"registers": [27, 31], "shared": 16, "local": 0})

    def test_local_memory_needs_a_reason(self):
        (message, *_) = self.judge("new_kernel", use(local=4), use())
        with self.assertRaisesRegex(kernel_budget.Refused, "line 6 of the budget is none"):
            kernel_budget.read_budget(BUDGET + message.splitlines()[-1])

    def test_another_toolkit_compares_all_but_registers(self):
        kernel = "cast_kernel<4, float, bf16>"
        self.assertEqual(self.judge(kernel, use(99), use(99), with_registers=False), [])
        self.assertEqual(len(self.judge(kernel, use(99), use(99, local=4), with_registers=False)), 1)

    def test_kernel_of_one_architecture_only(self):
        (message, *_) = self.judge("new_kernel", use())
        self.assertIn("not compiled for every architecture", message)

    def test_damaged_budgets(self):
        for damaged in (BUDGET.replace("   27 ", ""), BUDGET.replace(" 28 ", " -1 "),
                        BUDGET.replace("toolkit 13.0", ""), BUDGET.replace("architectures 80 90", ""),
                        BUDGET + BUDGET.splitlines()[-1], BUDGET.replace("544", "54.4"), ""):
            with self.assertRaises(kernel_budget.Refused):
                kernel_budget.read_budget(damaged)


class WithCompiler(unittest.TestCase):
    """The whole script on a source of its own."""

    def setUp(self):
        if NVCC is None:
            self.skipTest("no nvcc")
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        source = self.folder / "planted.cu"
        source.write_text(PLANTED, encoding="utf-8")
        self.commands = self.folder / "compile_commands.json"
        self.commands.write_text(json.dumps([{
            "directory": str(self.folder), "file": str(source),
            "command": f"{NVCC} -std=c++17 -O3 -x cu -c {source} -o planted.o"}]), encoding="utf-8")
        release = kernel_budget.toolkit_release({"command": NVCC})
        self.head = f"toolkit {release}\narchitectures 80 90\n"

    def run_script(self, budget, *arguments):
        path = self.folder / "budget.txt"
        path.write_text(self.head + budget, encoding="utf-8")
        return subprocess.run([sys.executable, SCRIPT, "--commands", self.commands, "--budget", path,
                               "--sources", self.folder, *arguments], capture_output=True, text=True,
                              check=False)

    def test_planted_kernels(self):
        granted = self.run_script("1 1 0 other_kernel\n", "--print").stdout.splitlines()
        self.assertEqual([line.split()[3] for line in granted], ["local_kernel<16>", "shared_kernel"])
        self.assertRegex(granted[0], r"\| local [1-9]\d*: $")
        self.assertEqual(granted[1].split()[2], "256")

        good = f"{granted[0]}its index is known at run time only\n{granted[1]}\n"
        result = self.run_script(good)
        self.assertEqual(result.returncode, 0, result)
        self.assertIn("2 kernels, sm_80, sm_90", result.stdout)

        for budget, message in (
                (good.replace(" 256 ", " 252 "), "shared_kernel: sm_80 shared 256 > 252"),
                (good.replace(good[good.index(" |"):good.index("only") + 4], ""),
                 "local_kernel<16>: sm_80 local 64 > 0"),
                (good.splitlines()[1] + "\n", "local_kernel<16>: has no line"),
                (good + "1 1 0 gone_kernel\n", "gone_kernel: has a line in the budget and is no kernel"),
                (" 1 1 " + good.split(None, 2)[2], "local_kernel<16>: sm_80 registers")):
            result = self.run_script(budget)
            self.assertEqual(result.returncode, 1, result)
            self.assertIn(message, result.stdout)

    def test_failures_have_an_exit_code(self):
        self.assertEqual(self.run_script("this is no line\n").returncode, 2)
        (self.folder / "planted.cu").write_text("no C++", encoding="utf-8")
        result = self.run_script("1 1 0 a_kernel\n")
        self.assertEqual(result.returncode, 1, result)
        self.assertIn("does not compile for sm_80", result.stderr)
        self.commands.write_text("[]", encoding="utf-8")
        result = self.run_script("1 1 0 a_kernel\n")
        self.assertEqual(result.returncode, 2, result)
        self.assertIn("names no .cu file", result.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--nvcc")
    known, rest = parser.parse_known_args()
    NVCC = known.nvcc
    unittest.main(argv=[sys.argv[0], *rest])
