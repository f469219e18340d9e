# SPDX-License-Identifier: Apache-2.0
"""bench/kernel_times.py on what Nsight Compute prints, without Nsight Compute.

usage: kernel_times_test.py PROGRAM [unittest options]
"""
import copy
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "bench" / "kernel_times.py"
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

# As `tandem plan --json` writes it: what of a step of two launches and a library's product is in it.
def operation(kind, read, written, weights=0):
    return {"kind": kind, "bytes_read": read, "bytes_written": written,
            "operands": [{"bytes": weights, "read": True, "written": False, "lasting": True},
                         {"bytes": 7, "read": True, "written": True, "lasting": False}]}


PLAN = {"plan_hash": "0123", "config": {"batch": 8, "image": 256, "precision": "bf16", "fuse": ["all"],
                                        "momentum": 0.0},
        "stages": [{"name": "copy", "operations": [operation("copy", 10, 10)]},
                   {"name": "train", "operations": [operation("bias_relu_forward", 2e6, 1e6),
                                                    operation("relu_forward", 1e6, 1e6),
                                                    operation("conv2x2_update", 3e6, 1e6, 5e5)]}]}
KERNELS = [{"kernel": "bias_forward_kernel<8, 1, bf16>", "launches": 1.0, "us": 3.0, "bytes": 2e6},
           {"kernel": "relu_forward_kernel<8, bf16>", "launches": 1.0, "us": 2.0, "bytes": 0.0},
           {"kernel": "nvjet_sm90", "launches": 1.0, "us": 7.0, "bytes": 4e6},
           {"kernel": "cublasLt::splitKreduce_kernel", "launches": 1.0, "us": 1.0, "bytes": 1e6}]
BENCH = {"config": {"momentum": 0.0},
         "rows": [{"workload": "segment", "batch": 8, "image": 256, "precision": "bf16", "fuse": ["all"],
                   "schedule": schedule, "augment": None, "steps_per_s": {"median": rate}}
                  for schedule, rate in (("overlap", 100000.0), ("serial", 50000.0))]}


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
            written = json.loads(out.read_text(encoding="utf-8"))
            self.assertEqual((written["schema"], written["model"], len(written["kernels"])), (1, None, 2))


class Model(unittest.TestCase):
    def test_kernels_stand_beside_their_operations(self):
        products, forward, copies = kernel_times.beside_model(KERNELS, PLAN)
        self.assertEqual(products, {"group": "products, casts", "operations": 1, "launches": 2.0, "us": 8.0,
                                    "counted": 5e6, "model": 4e6, "weights": 5e5})
        self.assertEqual(forward, {"group": "bias, relu forward", "operations": 2, "launches": 2.0,
                                   "us": 5.0, "counted": 2e6, "model": 5e6, "weights": 0})
        self.assertEqual((copies["group"], copies["model"], copies["launches"]), ("copy", 20, 0.0))

    def test_table(self):
        lines = kernel_times.model_table(kernel_times.beside_model(KERNELS, PLAN)).splitlines()
        self.assertEqual(lines[1].split(), ["1", "products,", "casts", "2.0", "8.0", "5.0", "4.0", "1.25", "0.5"])
        self.assertEqual(lines[3].split()[:5], ["1", "copy", "0.0", "0.0", "-"])
        self.assertEqual(lines[4].split()[-6:], ["4.0", "13.0", "7.0", "9.0", "0.78", "0.5"])

    def test_another_plan_is_refused(self):
        for change in (lambda plan: plan["stages"][1]["operations"].append(operation("permute", 1, 1)),
                       lambda plan: plan["stages"][1]["operations"].pop(),
                       lambda plan: plan["stages"][1]["operations"].extend([operation("relu_forward", 1, 1)]),
                       lambda plan: plan["stages"][1]["operations"].append(operation("new_kind", 1, 1))):
            plan = copy.deepcopy(PLAN)
            change(plan)
            with self.assertRaises(ValueError):
                kernel_times.beside_model(KERNELS, plan)

    def test_every_kernel_and_kind_of_the_project_has_one_row(self):
        kernels = (ROOT / "tests/gpu/kernel_list.txt").read_text(encoding="utf-8").splitlines()[1:]
        self.assertGreater(len(kernels), 20)
        for kernel in kernels:
            groups = [name for name, _, pattern in kernel_times.GROUPS if re.fullmatch(pattern, kernel)]
            self.assertEqual(len(groups), 0 if kernel == "spin_kernel" else 1, kernel)  # tests only
        text = (ROOT / "engine/operation.hpp").read_text(encoding="utf-8")
        text = text[text.index("enum class OpKind"):text.index("kOpKindCount")]
        kinds = re.findall(r"^  (\w+),", text, re.MULTILINE)
        self.assertGreater(len(kinds), 30)
        for kind in kinds:
            groups = [name for name, pattern, _ in kernel_times.GROUPS if re.fullmatch(pattern, kind)]
            self.assertEqual(len(groups), 0 if kind == "callable" else 1, kind)

    def test_plan_command_takes_what_the_plan_knows(self):
        command = ["b/tandem", "train", "segment", "--data", "synthetic", "--steps", "4", "--batch=8", "--quiet"]
        self.assertEqual(kernel_times.plan_command("a/tandem", command, {"--data", "--batch"}),
                         ["a/tandem", "plan", "segment", "--data", "synthetic", "--batch=8"])
        for other in (["tandem", "bench", "segment"], ["tandem", "train", "--model", "x.json"],
                      ["tandem", "train", "segment", "--batch", "8"], ["x"]):
            self.assertIsNone(kernel_times.plan_command("tandem", other, {"--data", "--batch"}), other)

    def test_plan_of_a_training_command(self):
        command = [PROGRAM, "train", "classify", "--data", "synthetic", "--image", "64", "--batch", "4",
                   "--precision", "bf16", "--momentum", "0", "--augment", "gpu", "--steps", "4", "--quiet"]
        plan = kernel_times.plan_of(PROGRAM, command)
        for key, value in (("batch", 4), ("image", 64), ("precision", "bf16"), ("momentum", 0)):
            self.assertEqual(plan["config"][key], value)
        self.assertEqual([stage["name"] for stage in plan["stages"]], ["copy", "augment", "train"])
        with self.assertRaisesRegex(ValueError, "exit 2.*--batch"):
            kernel_times.plan_of(PROGRAM, [*command, "--batch", "0"])

    def test_time_of_the_serial_row(self):
        self.assertEqual(kernel_times.step_us(BENCH, "segment", PLAN["config"]), 20.0)
        for key, value in (("batch", 16), ("precision", "tf32"), ("fuse", ["none"]), ("momentum", 0.9)):
            with self.assertRaisesRegex(ValueError, f"no serial row of segment .*{key}"):
                kernel_times.step_us(BENCH, "segment", {**PLAN["config"], key: value})

    def test_gaps(self):
        self.assertIn("4 kernels a step take 13.0 us; a serial step takes 20.0 us: 7.0 us, 35.0 %, are gaps, "
                      "1.75 us a kernel", kernel_times.gaps(KERNELS, 20.0))
        self.assertIn("gaps cannot be told", kernel_times.gaps(KERNELS, 12.0))

    def test_stored_times_are_printed_again(self):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            stored, bench, program, out = (folder / file for file in ("kt.json", "b.json", "tandem", "o.json"))
            stored.write_text(json.dumps({
                "schema": 1, "steps": 4, "kernels": KERNELS,
                "command": ["gone/tandem", "train", "segment", "--data", "synthetic"]}), encoding="utf-8")
            bench.write_text(json.dumps(BENCH), encoding="utf-8")
            program.write_text(f"#!/bin/sh\n[ \"$3\" = --help ] && echo --data && exit\n"
                               f"cat <<'TEXT'\n{json.dumps(PLAN)}\nTEXT\n", encoding="utf-8")
            program.chmod(0o755)

            def run(*arguments):
                return subprocess.run([sys.executable, SCRIPT, "--from", stored, *arguments],
                                      capture_output=True, text=True, check=False)

            result = run("--program", program, "--bench", bench, "--json", out)
            self.assertEqual(result.returncode, 0, result)
            for text in ("nvjet_sm90", "1 products", "35.0 %, are gaps"):
                self.assertIn(text, result.stdout)
            written = json.loads(out.read_text(encoding="utf-8"))
            self.assertEqual((written["plan_hash"], written["step_us"]), ("0123", 20.0))
            self.assertEqual(written["model"][0]["counted"], 5e6)

            self.assertEqual(run().returncode, 1)  # the command's program is gone
            self.assertEqual(run("--program", program, "--bench", folder / "none.json").returncode, 1)
            self.assertEqual(run("--steps", "4").returncode, 2)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
