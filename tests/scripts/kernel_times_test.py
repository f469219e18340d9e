# SPDX-License-Identifier: Apache-2.0
"""bench/kernel_times.py on what Nsight Compute prints, without Nsight Compute.

usage: kernel_times_test.py [unittest options]
"""
import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "bench" / "kernel_times.py"
SPEC = importlib.util.spec_from_file_location("kernel_times", SCRIPT)
kernel_times = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(kernel_times)

OUTPUT = '''==PROF== Connected to process 1
segment 256 x 256
==PROF== Disconnected
"ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum","gpu__time_duration.sum"
"","","","Mbyte","Kbyte","us"
"0","1","void tandem::<unnamed>::relu_kernel<float>(float *, long)","1.5","500","1,000.5"
"1","1","void tandem::<unnamed>::relu_kernel<float>(float *, long)","0.5","500","999.5"
"2","1","void cutlass::Kernel2<cutlass_gemm>(Params)","2","0","10"
'''


class KernelTimes(unittest.TestCase):
    def test_sums_of_a_step(self):
        first, second = kernel_times.per_step(kernel_times.read_rows(OUTPUT), steps=2)
        self.assertEqual(first, {"kernel": "relu_kernel<float>", "launches": 1.0, "us": 1000.0,
                                 "bytes": 1.5e6})
        self.assertEqual(second, {"kernel": "cutlass::Kernel2", "launches": 0.5, "us": 5.0, "bytes": 1e6})

    def test_names(self):
        for name, short in (
                ("void tandem::<unnamed>::copy_kernel<(int)4, tandem::bf16, (bool)1>(const T2 *)",
                 "copy_kernel<4, bf16, 1>"),
                ("void tandem::cuda::<unnamed>::warp_kernel<(tandem::Border)0>(tandem::AugmentSpec)",
                 "warp_kernel<0>"),
                ("sm90_xmma_gemm_bf16(float)", "sm90_xmma_gemm_bf16")):
            self.assertEqual(kernel_times.short_name(name), short)

    def test_table_adds_up(self):
        last = kernel_times.table(kernel_times.per_step(kernel_times.read_rows(OUTPUT), 1)).splitlines()[-1]
        self.assertEqual(last.split(), ["a", "step", "3.0", "2010.0", "5.0", "2"])

    def test_without_a_table(self):
        with self.assertRaisesRegex(ValueError, "no table"):
            kernel_times.read_rows("==ERROR== nothing was profiled")

    def test_failures_have_a_message(self):
        for tool, text in (("/nowhere/ncu", "No such file"), ("false", "exit 1"), ("true", "no table")):
            result = subprocess.run([sys.executable, SCRIPT, "--steps", "1", "--ncu", tool, "--", "x"],
                                    capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 1, result)
            self.assertIn(text, result.stderr)

    def test_writes_json(self):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder) / "ncu"
            tool.write_text(f"#!/bin/sh\ncat <<'TEXT'\n{OUTPUT}TEXT\n", encoding="utf-8")
            tool.chmod(0o755)
            out = pathlib.Path(folder) / "out.json"
            result = subprocess.run([sys.executable, SCRIPT, "--steps", "1", "--ncu", tool, "--json", out,
                                     "--", "x"], capture_output=True, text=True, check=True)
            self.assertIn("relu_kernel<float>", result.stdout)
            self.assertIn('"schema": 1', out.read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
