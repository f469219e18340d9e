# SPDX-License-Identifier: Apache-2.0
"""The program as a user meets it: results, exit codes, messages, files.

usage: cli_test.py PROGRAM [unittest options]
"""
import csv
import fcntl
import gzip
import hashlib
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
import zlib
from pathlib import Path

PROGRAM = ""
DOCS = Path(__file__).resolve().parents[2] / "docs"
SUMMARY_KEYS = {
    "workload", "device", "schedule", "precision", "batch", "image", "steps", "seed", "cores",
    "first_loss", "last_loss", "steps_per_s", "images_per_s", "pixel_accuracy", "miou",
    "garment_miou", "background_miou", "weights_sha256", "garment_iou", "class_names", "plan_hash",
    "config"}
ROW_KEYS = {
    "workload", "batch", "image", "schedule", "precision", "device", "input", "workers", "warmup",
    "steps", "steps_per_s", "images_per_s", "stage_ms", "bound", "gain", "memory_bytes",
    "plan_hash", "verified", "gpu", "driver", "sm_clock_mhz", "memory_clock_mhz", "gpu_busy_pct",
    "nvml_util_pct", "power_w", "throttled", "prepare_s", "capture_s", "gpu_memory_bytes"}
FOUND_KEYS = {
    "batch_per_gpu", "global_batch", "gpus", "status", "reason", "predicted_bytes", "bytes_per_sample",
    "steps_run", "warmup_steps", "repeats", "throughput_mean", "throughput_median", "throughput_min",
    "throughput_max", "throughput_ci95", "noise_pct", "step_ms_mean", "step_ms_median", "step_ms_p95", "mem_peak_bytes",
    "mem_free_bytes", "gpu_busy_pct", "nvml_util_pct", "sm_clock_mhz", "memory_clock_mhz", "power_w", "throttled"}
OVERLAP_KEYS = {"balance", "grid_fill", "blocks", "t_a_ms", "t_b_ms", "serial_ms", "overlap_ms", "bound",
                "speedup", "efficiency", "verdict"}


def plan_hash(plan):
    lines = "".join(f"{problem} -> {plan['algorithms'][problem]}\n" for problem in sorted(plan["algorithms"]))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def idx(shape, data):
    return struct.pack(f">HBB{len(shape)}I", 0, 8, len(shape), *shape) + bytes(data)


def garment_pictures(count):
    """A bright rectangle in each picture, its height by the label."""
    data = bytearray()
    for i in range(count):
        height = 4 + 2 * (i % 10)
        data += bytes(200 if 4 <= x < 24 and y < height else 0 for y in range(28) for x in range(28))
    return idx((count, 28, 28), data)


def write_garments(folder, count=20):
    """The four files of Fashion-MNIST, small."""
    folder.mkdir()
    for split in ("train", "t10k"):
        (folder / f"{split}-images-idx3-ubyte").write_bytes(garment_pictures(count))
        labels = idx((count,), [i % 10 for i in range(count)])
        (folder / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))


def png(side, value):
    """A square of one colour, its lower half black."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([value if y < side // 2 else 0] * (3 * side)) for y in range(side))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def write_pictures(folder, count=10):
    """Two classes, bright and dark, with pictures of several sizes."""
    for name, value in (("bright", 250), ("dark", 60)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            (folder / name / f"{i:02}.png").write_bytes(png(30 + 3 * i, value + i % 5))


def write_cifar(folder, count=12):
    folder.mkdir()
    for name in (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"):
        (folder / name).write_bytes(b"".join(bytes([i % 10]) + bytes([20 * (i % 10)] * 3072)
                                             for i in range(count)))


def network(trained, image=32, frozen=(), name="mine"):
    return json.dumps({"schema": 1, "name": name, "image": image, "frozen": list(frozen),
                       "trained": list(trained)})


def conv(channels_in, channels_out, kernel, stride=1, padding=0):
    return {"layer": "conv", "in_channels": channels_in, "out_channels": channels_out, "kernel": kernel,
            "stride": stride, "padding": padding}


FROZEN = [conv(3, 8, 1), {"layer": "relu"}, conv(8, 8, 2, 2)]
OF_PICTURES = [{"layer": "flatten"}, {"layer": "linear", "in_features": 8 * 16 * 16, "out_features": 10}]
OF_PIXELS = [{"layer": "transposed_conv", "in_channels": 8, "out_channels": 8, "kernel": 2, "stride": 2},
             {"layer": "relu"}, conv(8, 11, 3, 1, 1)]


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


class CommandLine(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.data = self.folder / "data"
        write_garments(self.data)

    def run_program(self, *arguments, environment=None):
        return subprocess.run([PROGRAM, *map(str, arguments)], cwd=self.folder, text=True,
                              capture_output=True, timeout=300,
                              env={**os.environ, **(environment or {})})

    def succeed(self, *arguments):
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertNotIn("tandem:", result.stderr)
        return result

    def train(self, *arguments):
        """Arguments of a very small training run; later ones win."""
        return ("train", "segment", "--data", f"fashion-scenes:{self.data}", "--image", 32, "--batch",
                2, "--steps", 3, "--eval", 4, "--device", "host", *arguments)

    def classify(self, *arguments):
        return ("train", "classify", "--data", f"fashion-mnist:{self.data}", "--image", 32, "--batch", 8,
                "--epochs", 2, "--device", "host", *arguments)

    def summary(self, *arguments):
        return json.loads(self.succeed(*arguments, "--json", "-").stdout)["summary"]

    def bench(self, *arguments):
        if "--batch" not in arguments:
            arguments = ("--batch", 2, *arguments)
        return ("bench", "segment", "--image", 32, "--steps", 6, "--windows", 3, "--warmup", 2,
                "--workers", 2, "--device", "host", *arguments)

    def info(self, environment=None):
        result = self.run_program("info", "--json", "-", environment=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def gpus(self):
        cuda = self.info()["cuda"]
        return [] if cuda is None else cuda["devices"]

    def need_gpu(self):
        if self.gpus():
            return
        if os.environ.get("TANDEM_REQUIRE_GPU") == "1":
            self.fail(f"TANDEM_REQUIRE_GPU=1, but {self.info()['missing']}")
        self.skipTest(f"no GPU: {self.info()['missing'][0]['cost']}")

    def files(self):
        return {path.relative_to(self.folder): path.read_bytes() if path.is_file() else None
                for path in self.folder.rglob("*")}

    def refuse(self, code, words, *arguments):
        """One message with these words, this exit code, nothing on stdout, nothing written."""
        before = self.files()
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        messages = [line for line in result.stderr.splitlines() if line.startswith("tandem:")]
        self.assertEqual(len(messages), 1, result.stderr)
        for word in words if isinstance(words, (list, tuple)) else [words]:
            self.assertIn(word, result.stderr)
        for line in result.stderr.splitlines():
            self.assertTrue(line.startswith(("tandem: ", "  hint: ")), result.stderr)
        self.assertEqual(result.stdout, "")
        self.assertEqual(self.files(), before)

    # --- help, versions, usage -------------------------------------------------------------------

    def test_help_and_version(self):
        self.assertRegex(self.succeed("--version").stdout, r"^tandem \d+\.\d+\.\d+\n$")
        commands = self.succeed("--help").stdout
        for command in ("info", "train", "bench", "predict"):
            self.assertIn(command, commands)
        options = self.succeed("train", "segment", "--help").stdout
        for option in ("--batch", "--schedule", "--lr", "--out", "1 to 65535"):
            self.assertIn(option, options)

    def test_help_says_what_a_default_is(self):
        for command in ("segment", "classify"):
            self.assertIn("--with-accuracy N:1 to 1000=not done", self.succeed("find-batch", command, "--help").stdout)
        self.assertIn("divisor behind that, no nearer to 0 than 1e-06",
                      " ".join(self.succeed("train", "classify", "--help").stdout.split()))

    def test_output_that_does_not_arrive(self):
        """A full disk behind standard output: an error, and not a success with half a text."""
        for arguments in (("--help",), ("--version",), ("train", "segment", "--help"), ("info",), ("info", "--json", "-"),
                          ("profile", "segment", "--image", "32", "--device", "host", "--quiet", "--json", "-")):
            with open("/dev/full", "w", encoding="utf-8") as full:
                result = subprocess.run([PROGRAM, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            self.assertEqual((result.returncode, result.stderr), (3, "tandem: standard output cannot be written\n"))

    def test_files_that_cannot_be_replaced(self):
        """Refused before anything is computed: a result appears as a whole, which needs a plain file."""
        for command in (self.train(), self.classify(), self.bench(), self.overlap(), self.find_batch("segment"),
                        self.profile("segment")):
            self.refuse(3, ["--json /dev/null", "not a plain file"], *command, "--json", "/dev/null")
        (self.folder / "run").mkdir()
        (self.folder / "run/decoder.safetensors").symlink_to("/dev/null")
        self.refuse(3, ["--out run/decoder.safetensors", "not a plain file"], *self.train("--out", "run", "--quiet"))

    def test_info(self):
        text = self.succeed("info").stdout
        for word in ("OpenBLAS", "compiler", "backends"):
            self.assertIn(word, text)
        info = self.info()
        self.assertEqual(info["schema"], 1)
        self.assertEqual(info["backends"], ["host"] + ["cuda"] * (info["cuda"] is not None))
        if info["cuda"] is not None:
            self.assertLessEqual({"cuda", "cudnn", "cublaslt"}, info["environment"].keys())
        self.assertNotIn("NVML: NVML", text)
        # Whoever has no GPU is told why, by all commands with the same words.
        reasons = [item["cost"] for item in info["missing"] if item["what"].startswith("CUDA")]
        self.assertEqual(len(reasons), 0 if self.gpus() else 1)

    def test_warnings(self):
        def warnings(**variables):
            for name in ("NVIDIA_TF32_OVERRIDE", "CUDA_DEVICE_MAX_CONNECTIONS"):
                variables.setdefault(name, None)
            environment = {k: v for k, v in {**os.environ, **variables}.items() if v is not None}
            result = subprocess.run([PROGRAM, "info", "--json", "-"], env=environment, text=True,
                                    capture_output=True, timeout=60, check=True)
            return json.loads(result.stdout)["warnings"]

        self.assertEqual(warnings(), [])
        self.assertEqual(warnings(CUDA_DEVICE_MAX_CONNECTIONS="4"), [])
        few = warnings(CUDA_DEVICE_MAX_CONNECTIONS="3")
        self.assertEqual(len(few), 1)
        self.assertIn("CUDA_DEVICE_MAX_CONNECTIONS=3 is smaller than the 4 streams", few[0])
        tf32 = warnings(NVIDIA_TF32_OVERRIDE="0")
        self.assertEqual(len(tf32), 1)
        self.assertIn("NVIDIA_TF32_OVERRIDE=0", tf32[0])

    def test_unknown_names(self):
        self.refuse(2, ["unknown option '--batchsize'", "'--batch'"], *self.train("--batchsize", 4))
        self.refuse(2, ["unknown option '--schedul'", "'--schedule'"], *self.bench("--schedul=serial"))
        self.refuse(2, ["unknown command 'trian'", "'train'"], "trian", "segment")
        self.refuse(2, ["unknown command 'segmnt'", "'segment'"], "train", "segmnt")
        self.refuse(2, "unknown argument 'more'", *self.train("more"))
        self.refuse(2, "no command")
        self.refuse(2, "no workload for 'train'; allowed: segment, classify", "train")
        self.refuse(2, "--batch needs --model FILE", "train", "--batch", 4)
        self.refuse(2, "--weights", "predict", "segment")

    def test_later_versions(self):
        later = "not in this version"
        for command in (("train", "resnet18"), ("bench", "resnet18"), ("tune", "resnet18"),
                        ("predict", "classify"), ("eval", "resnet18")):
            self.refuse(2, [command[1], later], *command)
        self.refuse(2, ["--resume", later], *self.train("--resume"))
        self.refuse(2, ["--resume", later], *self.train("--resume", "file"))
        self.refuse(2, ["--resume", later], *self.classify("--resume"))
        self.refuse(2, ["auto", later], *self.find_batch("segment", "--schedule", "auto"))
        self.refuse(2, ["auto", later], *self.bench("--schedule", "serial,auto"))
        self.refuse(2, ["folder:x", later], *self.train("--data", "folder:x"))

    def test_a_row_twice(self):
        self.refuse(2, ["--batch", "4", "twice"], *self.bench("--batch", "4,8,4"))
        self.refuse(2, ["--schedule", "serial", "twice"], *self.bench("--schedule", "serial,serial"))
        self.refuse(2, ["--batch", "8", "twice"], "profile", "segment", "--batch", "8,8", "--device", "host")

    def test_a_trace_is_no_result(self):
        self.refuse(2, ["--trace and --json are one file"], "profile", "segment", "--device", "host",
                    "--trace", "one", "--json", "one")
        self.assertFalse(os.path.exists("one"))

    def test_values_out_of_range(self):
        self.refuse(2, ["--image", "'48'", "power of two from 32 to 512"], *self.train("--image", 48))
        self.refuse(2, ["--image", "'1024'"], *self.train("--image", 1024))
        self.refuse(2, ["--batch", "'0'", "1 to"], *self.train("--batch", 0))
        self.refuse(2, ["--batch", "'0'", "1 to"], *self.bench("--batch", "4,0"))
        for batches in ("4,,8", "4,", ",4", ","):
            self.refuse(2, ["--batch", "'' is not allowed", "1 to"], *self.bench("--batch", batches))
        self.refuse(2, ["--schedule", "'' is not allowed", "serial"], *self.bench("--schedule", "serial,"))
        self.refuse(2, ["--balance", "'' is not allowed"], "bench", "overlap", "--balance", "1:1,,1:2")
        self.refuse(2, ["--batch", "'2x'"], *self.train("--batch", "2x"))
        self.refuse(2, ["--classes", "'1'", "2 to 254"], *self.train("--classes", 1))
        self.refuse(2, ["--classes is 5", "11 classes"], *self.train("--classes", 5))
        self.refuse(2, ["--lr", "'nan'"], *self.train("--lr", "nan"))
        self.refuse(2, ["--lr", "'-1'"], *self.train("--lr=-1"))
        self.refuse(2, ["--garments", "'5'", "1 to 4"], *self.train("--garments", 5))
        self.refuse(2, ["--data", "'nothing'", "synthetic"], *self.train("--data", "nothing"))
        self.refuse(2, "--steps needs a value", *self.train("--steps"))
        self.refuse(2, ["--steps", "--epochs"], *self.train("--epochs", 1))

    def test_devices(self):
        self.refuse(2, ["'cuda:'", "auto, host, cuda:N"], *self.train("--device", "cuda:"))
        self.refuse(2, "'gpu'", *self.train("--device", "gpu"))
        gpus = self.gpus()
        reason = f"cuda:0 to cuda:{len(gpus) - 1}" if gpus else next(
            item["cost"].split(";")[0] for item in self.info()["missing"]
            if item["what"].startswith("CUDA")).removeprefix("not built in: ")
        for command in (self.train(), self.bench(), ("bench", "overlap"),
                        ("tune", "segment", "--out", "plan.json"),
                        ("predict", "segment", "--weights", "none", "--out", "a.png")):
            self.refuse(4, ["--device cuda:99", reason], *command, "--device", "cuda:99")
        if not gpus:
            self.refuse(4, ["--device cuda:0", reason], *self.train("--device", "cuda:0"))
            self.refuse(4, ["tune needs a GPU", reason], "tune", "segment", "--out", "plan.json")
            auto = self.succeed(*self.train("--device", "auto"))
            self.assertIn("device host: ", auto.stderr)
            self.assertIn(reason, auto.stderr)
        self.refuse(4, "tune needs a GPU", "tune", "segment", "--out", "p.json", "--device", "host")

    def test_what_the_host_does_not_compute(self):
        for precision in ("tf32", "bf16"):
            words = [f"--precision {precision}", "needs a GPU", "fp32"]
            self.refuse(2, words, *self.train("--precision", precision))
            self.refuse(2, words, *self.bench("--precision", f"fp32,{precision}"))
            self.refuse(2, words, "predict", "segment", "--weights", "none", "--out", "a.png",
                        "--device", "host", "--precision", precision)
        self.refuse(2, ["'fp16'", "fp32, tf32, bf16"], *self.train("--precision", "fp16"))
        for command in (self.train("--plan", "plan.json"), self.bench("--plan", "plan.json")):
            self.refuse(2, ["--plan plan.json", "only a GPU"], *command)

    def test_config_file(self):
        config = self.folder / "run.json"
        config.write_text(json.dumps({"batch": 3, "steps": 2, "quiet": True}))
        arguments = ("train", "segment", "--data", "synthetic", "--image", 32, "--config", "run.json")
        result = self.succeed(*arguments, "--steps", 4, "--json", "-")
        self.assertEqual(result.stderr, "")
        summary = json.loads(result.stdout)["summary"]
        self.assertEqual((summary["batch"], summary["steps"]), (3, 4))  # the command line wins
        # What is stored with the result gives the same run again.
        config.write_text(json.dumps(summary["config"]))
        again = json.loads(self.succeed("train", "segment", "--config", "run.json").stdout)["summary"]
        self.assertEqual(again["config"], summary["config"])
        self.assertEqual(again["weights_sha256"], summary["weights_sha256"])

        config.write_text("# as TOML\nbatch = 3\nsteps = 2\n")
        result = self.succeed(*arguments, "--json", "-")
        self.assertEqual(json.loads(result.stdout)["summary"]["batch"], 3)
        config.write_text("batchs = 3\n")
        self.refuse(2, ["'--batchs'", "'--batch'"], *arguments)
        config.write_text('{"batch": 3')
        self.refuse(3, ["run.json", "not a JSON object"], *arguments)
        self.refuse(3, "nowhere.json", "train", "segment", "--config", "nowhere.json")
        config.write_text("{}")
        self.succeed(*arguments, "--batch", 2, "--steps", 1)
        for text, words in (
                ("", "holds no options"), (" \n\t\n", "holds no options"),
                ('["batch", 3]', "is a JSON list"), ("[]", "is a JSON list"),
                (300_000 * "[" + 300_000 * "]", "is a JSON list"), ("3", "is a JSON number"),
                ('"batch"', "is a JSON string"), ("null", "is a JSON null"),
                ('{"batch": 3, "steps": 1, "batch": 4}', ["batch is there twice", "each option once"]),
                ("batch = 3\nsteps = 1\nbatch = 4\n", ["batch is there twice", "each option once"]),
                ("fuse = 'head'\nfuse = 'many'\n", ["fuse is there twice", "each option once"]),
                ('{"config": "other.json"}', "config is for the command line"),
                ("config = 'other.json'\n", "config is for the command line"),
                ('{"": 3}', "has an option without a name")):
            config.write_text(text)
            self.refuse(2, ["--config run.json: ", *([words] if isinstance(words, str) else words)], *arguments)
        for value in ('{"steps": 1}', "[[2]]", 300_000 * "[" + "2" + 300_000 * "]"):
            config.write_text(f'{{"batch": {value}, "steps": 1}}')
            self.refuse(2, ["--config run.json: batch is an object, or a list", "allowed: a text, a number"], *arguments)
        config.write_text("[train]\nbatch = 3\n")
        self.refuse(3, ["run.json", "section 'train'"], *arguments)
        # Of no value, and not of what follows it.
        for nothing in ('""', "[]"):
            config.write_text(f'{{"fuse": {nothing}, "steps": 2}}')
            self.refuse(2, ["--config run.json", "fuse", "no value", "null"], "train", "segment", "--config",
                        "run.json")

    # --- bad files -------------------------------------------------------------------------------

    def test_bad_pictures(self):
        self.refuse(3, "/nowhere", *self.train("--data", "fashion-scenes:/nowhere"))
        pictures = self.data / "train-images-idx3-ubyte"
        labels = self.data / "train-labels-idx1-ubyte.gz"
        good, good_labels = pictures.read_bytes(), labels.read_bytes()
        for bad in (b"", good[:3], good[:1000], good + b"x", b"GIF89a" + good,
                    gzip.compress(good)[:-20], good[:4] + b"\xff" * 12 + good[16:]):
            with self.subTest(bad=bad[:24], size=len(bad)):
                pictures.write_bytes(bad)
                self.refuse(3, pictures.name, *self.train())
        pictures.write_bytes(good)
        for bad in (good_labels[:-9], good_labels[:20] + b"\x00" * 9 + good_labels[29:],
                    good_labels + b"x", gzip.compress(idx((20,), [10] * 20)),
                    gzip.compress(idx((19,), [1] * 19))):
            with self.subTest(bad=bad[:24], size=len(bad)):
                labels.write_bytes(bad)
                self.refuse(3, labels.name, *self.train())
        labels.unlink()
        self.refuse(3, "train-labels-idx1-ubyte", *self.train())

    def test_bad_weights(self):
        self.refuse(3, "none.safetensors", *self.train("--init", "none.safetensors"))
        self.succeed(*self.train("--out", "out"))
        good = (self.folder / "out/encoder.safetensors").read_bytes()
        init = self.folder / "init.safetensors"
        entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for bad in (b"", good[:5], good[:100], good[:-1], good + b"x", b"\xff" * 8 + good[8:],
                    safetensors(b"{not json"), safetensors({"a": {**entry, "shape": [3]}}, b"12345678"),
                    safetensors({"a": {**entry, "data_offsets": [0, 1 << 60]}}, b"12345678"),
                    safetensors({"a": {**entry, "dtype": "F99"}}, b"12345678"),
                    safetensors({"a": entry}, b"12345678")):
            init.write_bytes(bad)
            self.refuse(3, init.name, *self.train("--init", init.name))
        # Right as a file, but for another picture side; and a decoder is not an encoder.
        init.write_bytes(good)
        self.refuse(3, init.name, *self.train("--init", init.name, "--image", 64))
        self.refuse(3, "decoder", *self.train("--init", "out/decoder.safetensors"))
        self.refuse(3, "out2", "predict", "segment", "--weights", "out2", "--out", "a.png")
        self.refuse(2, ["--image is 64", "32"], "predict", "segment", "--weights", "out", "--out",
                    "a.png", "--image", 64)
        self.refuse(3, "nowhere", "predict", "segment", "--weights", "out", "--out", "nowhere/a.png")
        (self.folder / "out/decoder.safetensors").write_bytes(good)
        self.refuse(3, "decoder.safetensors", "predict", "segment", "--weights", "out", "--out",
                    "a.png", "--data", f"fashion-scenes:{self.data}")

    def test_places_that_cannot_be_written(self):
        (self.folder / "file").write_text("mine")
        self.refuse(3, "nowhere/log", *self.train("--log", "nowhere/log"))
        self.refuse(3, "nowhere/log", *self.train("--log", "nowhere/log", "--out", "out"))
        self.refuse(3, "file/out", *self.train("--out", "file/out", "--log", "log"))
        self.refuse(3, "--out file", *self.train("--out", "file"))
        self.refuse(3, "data", *self.train("--log", "data"))
        self.refuse(3, "nowhere/b.json", *self.bench("--json", "nowhere/b.json"))

    # --- runs ------------------------------------------------------------------------------------

    def test_train_and_predict(self):
        summaries = []
        for schedule in ("serial", "overlap"):
            result = self.succeed(*self.train("--schedule", schedule, "--log", "log", "--out",
                                              f"out-{schedule}", "--seed", 7))
            self.assertIn("garment mIoU", result.stdout)
            lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
            self.assertEqual([line["step"] for line in lines[:-1]], [0, 1, 2])
            losses = [line["loss"] for line in lines[:-1]]
            for loss in losses:
                self.assertTrue(0 < loss < 10)
            summary = lines[-1]["summary"]
            self.assertLessEqual(SUMMARY_KEYS, summary.keys())
            self.assertEqual(
                [summary[key] for key in ("workload", "device", "schedule", "precision", "batch",
                                          "image", "steps", "seed", "first_loss", "last_loss")],
                ["segment", "host", schedule, "fp32", 2, 32, 3, 7, losses[0], losses[2]])
            self.assertEqual(len(summary["garment_iou"]), 10)
            self.assertEqual(len(summary["class_names"]), 11)
            self.assertRegex(summary["weights_sha256"], r"^[0-9a-f]{64}$")
            self.assertTrue(0 <= summary["pixel_accuracy"] <= 1)
            self.assertTrue(0 < summary["background_miou"] < 1)
            self.assertGreater(summary["cores"], 0)
            self.assertEqual(sorted(path.name for path in (self.folder / f"out-{schedule}").iterdir()),
                             ["decoder.safetensors", "encoder.safetensors", "log.jsonl"])
            self.assertEqual((self.folder / "log").read_bytes(),
                             (self.folder / f"out-{schedule}/log.jsonl").read_bytes())
            summaries.append((losses, summary["weights_sha256"], summary["plan_hash"],
                              (self.folder / f"out-{schedule}/decoder.safetensors").read_bytes()))
        self.assertEqual(summaries[0], summaries[1])
        other = json.loads(self.succeed(*self.train("--seed", 8, "--json", "-")).stdout)
        self.assertNotEqual(other["summary"]["weights_sha256"], summaries[0][1])

        text = self.succeed("predict", "segment", "--weights", "out-serial", "--count", 5, "--out",
                            "sheet.png", "--data", f"fashion-scenes:{self.data}").stdout
        for word in ("pixel accuracy", "mIoU", "garment mIoU", "background", "black"):
            self.assertIn(word, text)
        png = (self.folder / "sheet.png").read_bytes()
        self.assertEqual(png[:8], b"\x89PNG\r\n\x1a\n")
        # 4 scenes of three 128-pixel tiles a row, two rows.
        self.assertEqual(struct.unpack(">II", png[16:24]), (4 * (16 + 384 + 8) + 16, 2 * 144 + 16))

    def test_train_with_init_and_epochs(self):
        self.succeed(*self.train("--out", "first", "--seed", 1))
        self.succeed(*self.train("--out", "second", "--seed", 2, "--init",
                                 "first/encoder.safetensors"))
        self.assertEqual((self.folder / "first/encoder.safetensors").read_bytes(),
                         (self.folder / "second/encoder.safetensors").read_bytes())
        # An epoch is 10,000 scenes: 16 steps of 640, the last with 400.
        result = self.succeed("train", "segment", "--data", f"fashion-scenes:{self.data}", "--image", 32,
                              "--batch", 640, "--epochs", 1, "--eval", 0, "--json", "-")
        summary = json.loads(result.stdout)["summary"]
        self.assertEqual(summary["steps"], 16)
        self.assertIsNone(summary["miou"])
        self.assertAlmostEqual(summary["images_per_s"] / summary["steps_per_s"], 625)

    def test_synthetic_has_no_scores(self):
        self.refuse(2, ["--eval is 4", "nothing held out"], *self.train("--data", "synthetic"))
        self.refuse(2, ["--data synthetic", "nothing held out"], "eval", "classify", "--weights", "out",
                    "--data", "synthetic")
        summary = json.loads(self.succeed(*self.train("--data", "synthetic", "--eval", 0, "--json", "-")).stdout)
        self.assertIsNone(summary["summary"]["garment_miou"])
        self.assertEqual(summary["summary"]["classes"], 10)

    def test_bench(self):
        for source in ("loader", "device"):
            self.succeed(*self.bench("--batch", "1,2", "--input", source, "--json", "b.json"))
            result = json.loads((self.folder / "b.json").read_text())
            self.assertEqual(result["schema"], 1)
            self.assertLessEqual({"cpu", "cores", "compiler", "openblas", "os", "version", "commit",
                                  "date"}, result["environment"].keys())
            self.assertEqual([(row["batch"], row["schedule"]) for row in result["rows"]],
                             [(1, "serial"), (1, "overlap"), (2, "serial"), (2, "overlap")])
            for row in result["rows"]:
                self.assertLessEqual(ROW_KEYS, row.keys())
                self.assertIs(row["verified"], True)
                self.assertEqual((row["input"], row["steps"]), (source, 6))
                rate = row["steps_per_s"]
                self.assertTrue(0 < rate["min"] <= rate["median"] <= rate["max"])
                self.assertEqual(list(row["stage_ms"]), ["copy", "encode", "train"])
                times = list(row["stage_ms"].values())
                self.assertAlmostEqual(row["bound"], sum(times) / max(times))
                self.assertGreater(row["memory_bytes"], 0)
                self.assertGreater(row["prepare_s"], 0)
                # The host has neither.
                self.assertEqual((row["capture_s"], row["gpu_memory_bytes"]), (None, None))
                serial = [other["steps_per_s"]["median"] for other in result["rows"]
                          if (other["batch"], other["schedule"]) == (row["batch"], "serial")]
                self.assertAlmostEqual(row["gain"], rate["median"] / serial[0])
        result = self.succeed(*self.bench("--schedule", "overlap", "--json", "-"))
        self.assertIsNone(json.loads(result.stdout)["rows"][0]["gain"])

    def test_first_and_last_loss_are_means_of_a_tenth(self):
        self.succeed(*self.train("--steps", 25, "--eval", 0, "--log", "log"))
        lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        losses, summary = [line["loss"] for line in lines[:-1]], lines[-1]["summary"]
        self.assertAlmostEqual(summary["first_loss"], sum(losses[:2]) / 2)
        self.assertAlmostEqual(summary["last_loss"], sum(losses[-2:]) / 2)

    def test_what_cannot_start_leaves_nothing(self):
        result = self.run_program(*self.train("--batch", 65535, "--image", 64, "--out", "out",
                                              "--log", "log"))
        self.assertEqual(result.returncode, 5, result.stderr)
        self.assertIn("bytes needed", result.stderr)
        self.assertFalse((self.folder / "out").exists())
        self.assertFalse((self.folder / "log").exists())

    def test_a_prediction_from_nan_is_refused(self):
        self.succeed(*self.train("--out", "run"))
        decoder = self.folder / "run/decoder.safetensors"
        decoder.write_bytes(decoder.read_bytes()[:-4] + struct.pack("<f", float("nan")))
        result = self.run_program("predict", "segment", "--weights", "run", "--data",
                                  f"fashion-scenes:{self.data}", "--count", 1, "--out", "p.png")
        self.assertEqual(result.returncode, 6, result.stderr)
        self.assertIn("decoder.safetensors", result.stderr)
        self.assertFalse((self.folder / "p.png").exists())

    def test_what_is_stored_can_be_replayed(self):
        """The configuration of each command's result is one that the command takes, and means the same."""
        small = ("--device", "host", "--image", 32)
        (self.folder / "m.json").write_text(network(OF_PICTURES, frozen=FROZEN))
        own, scenes = ("--model", "m.json"), ("--data", f"fashion-scenes:{self.data}")
        garments = ("--data", f"fashion-mnist:{self.data}")
        self.succeed(*self.train("--out", "net"))
        self.succeed(*self.classify("--epochs", 1, "--out", "classifier"))
        found = ("--device", "host", "--min", 2, "--max", 4, "--steps", 3, "--trial-ms", 0, "--repeats", 1,
                 "--max-repeats", 1)
        cycles = ("--batch", "2", "--wait", 1, "--active", 1, "--repeat", 1)
        for command, options in (
                (("train", "segment"), (*small, *scenes, "--batch", 2, "--steps", 3, "--eval", 4)),
                (("train", "segment"), (*small, "--data", "synthetic", "--batch", 2, "--steps", 2, "--schedule",
                                        "auto", "--trial-ms", 0)),
                (("train", "classify"), (*small, *garments, "--epochs", 1)),
                (("train",), (*own, *garments, "--steps", 2, "--device", "host")),
                (("bench", "segment"), (*small, "--batch", "2,4", "--steps", 4, "--windows", 3)),
                (("bench", "classify"), (*small, "--batch", 2, "--steps", 4, "--windows", 3)),
                (("bench", "overlap"), ("--device", "host", "--longest", 100, "--steps", 3)),
                (("find-batch", "segment"), (*found, "--image", 32)),
                (("find-batch", "classify"), (*found, "--image", 32, "--batch", 3)),
                (("find-batch", "classify"), (*found, "--image", 32, "--with-accuracy", 1, "--lr", 0.01,
                                              *garments)),
                (("find-batch",), (*found, *own)),
                (("find-batch",), (*found, *own, "--batch", "3", "--with-accuracy", 1, *garments)),
                (("profile", "segment"), (*small, *cycles)),
                (("profile", "classify"), (*small, *cycles, "--trace", "t", "--memory")),
                (("profile",), (*own, *cycles, "--device", "host")),
                (("plan", "segment"), ("--image", 32, "--batch", 2)),
                (("plan", "classify"), ("--image", 32, "--batch", 2)),
                (("eval", "segment"), ("--weights", "net", *scenes, "--count", 4, "--device", "host")),
                (("eval", "classify"), ("--weights", "classifier", *garments, "--device", "host")),
                (("predict", "segment"), ("--weights", "net", *scenes, "--count", 4, "--out", "p.png", "--device",
                                          "host")),
                (("augment",), ("--in", f"fashion-mnist:{self.data}", "--out", "a.png"))):
            with self.subTest(command=" ".join(map(str, (*command, *options)))):
                self.succeed(*command, *options, "--json", "first.json")
                stored = self.stored_config("first.json")
                (self.folder / "stored.json").write_text(json.dumps({**stored, "json": "again.json"}))
                self.succeed(*command, "--config", "stored.json")
                again = self.stored_config("again.json")
                self.assertEqual({**again, "json": "first.json"}, stored)

    def stored_config(self, name):
        result = json.loads((self.folder / name).read_text())
        return result.get("summary", result)["config"]

    def test_a_folder_is_no_configuration(self):
        result = self.run_program("train", "segment", "--config", ".")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("--config", result.stderr)

    def test_plan_is_what_training_does(self):
        for train, plan in (
                (self.train("--data", "synthetic", "--eval", 0),
                 ("segment", "--image", 32, "--batch", 2)),
                (self.train("--momentum", 0, "--fuse", "pointwise,many"),
                 ("segment", "--data", f"fashion-scenes:{self.data}", "--image", 32, "--batch", 2,
                  "--momentum", 0, "--fuse", "pointwise,many")),
                (self.classify("--augment", "gpu"),
                 ("classify", "--data", f"fashion-mnist:{self.data}", "--batch", 8, "--augment", "gpu"))):
            said = json.loads(self.succeed("plan", *plan, "--json", "-").stdout)
            self.assertEqual(said["plan_hash"], self.summary(*train)["plan_hash"])
            self.assertEqual((said["schema"], said["stages"][0]["name"]), (1, "copy"))

    def test_plan_counts_bytes(self):
        """Operands of known sizes; also in a precision that only a GPU computes."""
        arguments = ("plan", "segment", "--image", 32, "--batch", 2, "--precision", "bf16", "--momentum", 0)
        result = self.succeed(*arguments, "--json", "plan.json")
        plan = json.loads((self.folder / "plan.json").read_text(encoding="utf-8"))
        operations = [one for stage in plan["stages"] for one in stage["operations"]]
        for one in operations:
            for key, total in (("read", one["bytes_read"]), ("written", one["bytes_written"])):
                self.assertEqual(sum(operand["bytes"] for operand in one["operands"] if operand[key]), total)
        by_kind = {}
        for one in operations:
            by_kind.setdefault(one["kind"], []).append(one)
        pixels = 2 * 32 * 32
        (images,) = by_kind["u8_to_float"]
        self.assertEqual((images["bytes_read"], images["bytes_written"]), (3 * pixels, 6 * pixels))
        # The first decoder layer: 512 to 256 channels, its weights fp32, their copy bf16.
        update = max(by_kind["tconv2x2_update"], key=lambda one: one["bytes_written"])
        self.assertEqual(update["bytes_written"], (4 + 2) * 512 * 4 * 256)
        self.assertEqual([operand["name"] for operand in update["operands"] if operand["lasting"]],
                         ["decoder.0.weight", "decoder.0.weight.copy"])
        lines = {line.split()[0]: line.split() for line in result.stdout.splitlines()}
        self.assertEqual(lines["tconv2x2_update"][1], str(len(by_kind["tconv2x2_update"])))
        self.assertEqual(lines["a"][2], str(len(operations)))
        self.assertIn(plan["plan_hash"], result.stdout)

    def test_plan_refuses(self):
        self.refuse(2, ["--precision", "fp8", "bf16"], "plan", "segment", "--precision", "fp8")
        self.refuse(2, ["--batch", "0", "65535"], "plan", "segment", "--batch", 0)
        self.refuse(2, "no workload for 'plan'", "plan")
        self.refuse(3, "gone", "plan", "classify", "--data", "fashion-mnist:gone")

    def test_bench_says_that_windows_are_short(self):
        for steps, short in ((59, True), (60, False)):  # three windows of 4 x 5 steps
            for schedule in ("serial", "overlap"):
                result = self.succeed(*self.bench("--steps", steps, "--schedule", schedule))
                self.assertEqual("note: windows of 19 steps are short, and their speeds move a lot; take "
                                 "--steps 60 or more, or fewer --windows\n" in result.stderr,
                                 short and schedule == "overlap", result.stderr)

    def test_bench_says_why_it_knows_nothing_of_a_gpu(self):
        rows = json.loads(self.succeed(*self.bench("--json", "-")).stdout)["rows"]
        for row in rows:
            for name in ("gpu", "driver", "gpu_busy_pct", "nvml_util_pct", "sm_clock_mhz"):
                self.assertIsNone(row[name])
            for name in ("gpu_busy_reason", "nvml_util_reason"):
                self.assertIn("no GPU", row[name])

    def overlap(self, *arguments):
        return ("bench", "overlap", "--longest", 200, "--warmup", 1, "--steps", 4, *arguments)

    def check_overlap(self, result, cases):
        self.assertEqual([(row["balance"], row["grid_fill"]) for row in result["rows"]], cases)
        verdicts = {"pays": 0, "does nothing": 0, "hurts": 0, "unclear": 0}
        for row in result["rows"]:
            self.assertEqual(OVERLAP_KEYS, row.keys())
            a, b = row["t_a_ms"], row["t_b_ms"]
            self.assertGreater(min(a, b), 0)
            self.assertAlmostEqual(row["bound"], (a + b) / max(a, b))
            self.assertAlmostEqual(row["speedup"], row["serial_ms"] / row["overlap_ms"])
            efficiency = (row["serial_ms"] - row["overlap_ms"]) / min(a, b)
            self.assertAlmostEqual(row["efficiency"], efficiency)
            verdicts[row["verdict"]] += 1
            # More than can be: something else slowed the serial steps, or a stage alone.
            slowed = row["speedup"] > 1.1 * row["bound"] or max(a, b) > 1.1 * row["serial_ms"]
            self.assertEqual(row["verdict"], "unclear" if slowed else
                             "pays" if efficiency > 0.1 else "hurts" if efficiency < -0.1 else "does nothing")
        # One sentence for each verdict, with its number of cases.
        for (verdict, count), sentence in zip(verdicts.items(), result["sentences"], strict=True):
            subject = "What overlap does is unclear" if verdict == "unclear" else f"Overlap {verdict}"
            self.assertTrue(sentence.startswith(
                f"{subject} in {count} of {len(cases)} cases: balance " if count else
                f"{subject} nowhere"), sentence)

    def test_schedules_and_fusions_train_alike(self):
        """Bits do not depend on the schedule, nor on the fusions that keep them."""
        hashes = {}
        for schedule in ("serial", "overlap", "graph"):
            for fuse in ("none", "pointwise,many", "all"):
                result = self.succeed(*self.train("--steps", 12, "--eval", 0, "--schedule", schedule, "--fuse",
                                                  fuse, "--json", "-"))
                hashes[schedule, fuse] = json.loads(result.stdout)["summary"]["weights_sha256"]
                note = "schedule graph issues its steps without a graph: the host backend has no graphs"
                self.assertEqual(result.stderr.count(note), schedule == "graph", result.stderr)
        for fuse in ("none", "pointwise,many", "all"):
            self.assertEqual(len({hashes[schedule, fuse] for schedule in ("serial", "overlap", "graph")}), 1)
        self.assertEqual(hashes["serial", "none"], hashes["serial", "pointwise,many"])
        self.refuse(2, ["--fuse", "'some'", "pointwise"], *self.train("--fuse", "some"))

    def test_overlap_on_the_host(self):
        result = self.succeed(*self.overlap("--device", "host", "--balance", "1:4,1:1,2:1", "--json", "-"))
        self.check_overlap(json.loads(result.stdout), [("1:4", None), ("1:1", None), ("2:1", None)])
        text = self.succeed(*self.overlap("--device", "host", "--balance", "1:1")).stdout
        for word in ("t_A ms", "efficiency", "Overlap pays", "Overlap does nothing", "Overlap hurts",
                     "What overlap does is unclear"):
            self.assertIn(word, text)

    def test_overlap_refuses(self):
        for balance in ("1", "1:0", "0:1", "1:65", "1:2x", "a:b", ":", "1:1,2"):
            self.refuse(2, ["--balance", "1 to 64"], *self.overlap("--balance", balance))
        for option, values, twice in (("--balance", "1:1,2:1,1:1", "1:1"), ("--grid-fill", "12,12", "12")):
            self.refuse(2, f"{option} names {twice} twice; allowed: each once", *self.overlap(option, values))
        self.refuse(2, ["--grid-fill", "'0'"], *self.overlap("--grid-fill", "100,0"))
        self.refuse(3, "nowhere/o.json", *self.overlap("--device", "host", "--json", "nowhere/o.json"))

    def find_batch(self, *arguments):
        return ("find-batch", *arguments, "--device", "host", "--warmup", 1, "--steps", 3, "--repeats", 2,
                "--max-repeats", 2, "--trial-ms", 0)

    def found(self, *arguments):
        return json.loads(self.succeed(*self.find_batch(*arguments, "--flat", 0, "--refine", 0, "--json",
                                                        "-")).stdout)

    def check_found(self, result, sizes):
        """Every ok row ran, and the answers are ok rows."""
        self.assertEqual(result["schema"], 1)
        self.assertEqual([row["global_batch"] for row in result["rows"]], sizes)
        rates = {}
        for row in result["rows"]:
            ok = row["status"] == "ok"
            self.assertEqual((row["reason"] is None, row["steps_run"]), (ok, 6 if ok else 0))
            self.assertGreater(row["predicted_bytes"], 0)
            if not ok:
                continue
            self.assertLessEqual(FOUND_KEYS, row.keys())
            rates[row["global_batch"]] = row["throughput_median"]
            self.assertTrue(0 < row["throughput_min"] <= row["throughput_median"] <= row["throughput_max"])
            self.assertEqual(row["mem_peak_bytes"], row["predicted_bytes"])
            self.assertLessEqual(row["mem_peak_bytes"], result["memory_bytes"])
        best = max(rates.values())
        self.assertEqual(result["largest_feasible"]["batch"], max(rates))
        self.assertEqual(rates[result["best_throughput"]["batch"]], best)
        self.assertGreaterEqual(rates[result["recommended"]["batch"]], 0.95 * best)
        for answer in ("largest_feasible", "best_throughput", "recommended"):
            self.assertTrue(result[answer]["reason"].endswith("."))

    def check_what_overlap_does(self, seen):
        """The sentence is the one for the times beside it, whatever they came to. Returns whether it pays."""
        times = list(seen["stage_ms"].values())
        bound, speedup = sum(times) / max(times), seen["serial_ms"] / seen["overlap_ms"]
        self.assertAlmostEqual(seen["predicted_speedup"], bound)
        self.assertAlmostEqual(seen["measured_speedup"], speedup)
        if bound < 1.05:
            sentence = "Overlap has little to gain"
        elif speedup > 1.1 * bound:  # more than can be: something else slowed the serial trials
            sentence = "What overlap does here is unclear"
        elif speedup >= 1 + 0.1 * (bound - 1):
            sentence = "Overlap pays"
        else:
            sentence = "Overlap loses" if speedup < 1 else "Overlap does nothing"
        self.assertTrue(seen["overlap"].startswith(sentence), (seen["overlap"], sentence))
        return sentence == "Overlap pays"

    def test_what_is_read_is_not_written(self):
        """A command does not replace a file that it reads; the file is as it was."""
        (self.folder / "m.json").write_text((DOCS / "examples/keras.json").read_text())
        (self.folder / "t.csv").write_text((DOCS / "examples/trial.csv").read_text())
        (self.folder / "c.json").write_text('{"seed": 1}')
        before = {name: (self.folder / name).read_bytes() for name in ("m.json", "t.csv", "c.json")}
        table = ("--model", "m.json", "--data", "csv:t.csv")
        for name, command in (
                ("--model", ("find-batch", "--model", "m.json", "--csv", "m.json")),
                ("--model", ("find-batch", "--model", "m.json", "--json", "./m.json")),
                ("--data", ("find-batch", *table, "--with-accuracy", 1, "--csv", "t.csv")),
                ("--config", ("find-batch", "--model", "m.json", "--config", "c.json", "--json", "c.json")),
                ("--model", ("train", *table, "--json", "m.json")), ("--data", ("train", *table, "--log", "t.csv")),
                ("--model", ("profile", "--model", "m.json", "--json", "m.json"))):
            self.refuse(2, [name, "are one file"], *command, "--device", "host")
        self.assertEqual(before, {name: (self.folder / name).read_bytes() for name in before})
        (self.folder / "e.json").write_text("{}")
        one = ("--config", "e.json", "--device", "host")
        (self.folder / "link").symlink_to("e.json")
        for command in (self.bench(*one, "--json", "link"), ("bench", "classify", *one, "--json", "e.json"),
                        ("bench", "overlap", *one, "--json", "e.json"),
                        ("plan", "segment", "--config", "e.json", "--json", "e.json"),
                        ("eval", "classify", "--weights", "w", *one, "--json", "e.json"),
                        ("predict", "segment", "--weights", "w", *one, "--out", "e.json"),
                        ("augment", "--in", "synthetic", *one, "--out", "a.png", "--json", "./e.json"),
                        ("compare", "a", "b", "--config", "e.json", "--json", "e.json"),
                        ("report", "a", "--config", "e.json", "--out", "e.json")):
            self.refuse(2, ["--config", "are one file"], *command)

    def test_weights_that_are_read_are_not_written(self):
        self.succeed(*self.train("--out", "w"))
        read = ("--weights", "w", "--device", "host", "--data", f"fashion-scenes:{self.data}", "--count", 2)
        predict, scored = ("predict", "segment", *read), ("eval", "segment", *read)
        for name in ("encoder.safetensors", "decoder.safetensors", "log.jsonl"):
            self.refuse(2, ["--weights and --out are one file"], *predict, "--out", f"w/{name}")
            self.refuse(2, ["--weights and --json are one file"], *scored, "--json", f"./w/{name}")
        for _ in range(2):  # what lies beside them may be replaced
            self.succeed(*predict, "--out", "w/sheet.png", "--json", "w/p.json")
        initial = self.train("--init", "w/encoder.safetensors")
        for option in ("--json", "--log"):
            self.refuse(2, ["--init", option, "are one file"], *initial, option, "w/encoder.safetensors")
        self.succeed(*initial, "--out", "w", "--json", "w/summary.json")

    def test_data_are_not_written(self):
        write_pictures(self.folder / "fd")
        write_cifar(self.folder / "c10")
        (self.folder / "linked").mkdir()
        for name in ("bright", "dark"):
            (self.folder / "linked" / name).symlink_to(f"../fd/{name}")
        (self.folder / "outside.json").symlink_to("fd/dark/01.png")
        own = ("--device", "host", "--data")
        garments = f"{self.data.name}/t10k-labels-idx1-ubyte.gz"
        for data, file in (("folder:fd", "fd/bright/01.png"), ("folder:fd", "outside.json"),
                           ("folder:linked", "fd/dark/01.png"), (f"fashion-mnist:{self.data}", garments),
                           ("cifar10:c10", "./c10/test_batch.bin")):
            for option in ("--json", "--log"):
                self.refuse(2, ["--data", option, "are one file"], "train", "classify", "--steps", 1, *own, data, option, file)
            self.refuse(2, ["--data and --json"], "eval", "classify", "--weights", "w", *own, data, "--json", file)
            self.refuse(2, ["--data and --json"], "plan", "classify", "--data", data, "--json", file)
            for option in ("--json", "--csv"):
                self.refuse(2, ["--data", option, "are one file"], "find-batch", "classify", *own, data,
                            "--with-accuracy", 1, option, file)
        self.refuse(2, ["--data and --out"], "predict", "segment", "--weights", "w", *own,
                    f"fashion-scenes:{self.data}", "--out", garments)
        for _ in range(2):  # what is no data may be replaced
            self.succeed(*self.classify("--data", "folder:fd", "--out", "fd/.run", "--json", "fd/result.json"))

    def test_a_link_to_nothing_is_one_file(self):
        (self.folder / "link").symlink_to("there.json")
        self.refuse(2, ["--json and --csv are one file"], *self.find_batch("segment", "--json", "link", "--csv",
                                                                           "there.json"))

    def test_a_trace_is_no_other_file(self):
        """Nor is one of --json, or what the run reads, in the folder of the traces."""
        (self.folder / "log").mkdir()
        (self.folder / "log/cycle2.trace.json").write_text((DOCS / "examples/keras.json").read_text())
        (self.folder / "link").symlink_to("log/cycle2.trace.json")
        keras = ("--model", DOCS / "examples/keras.json")
        small = self.profile(*keras, "--batch", 2)
        for json_file, trace in (("log/cycle1.trace.json", ("log",)), ("./log/../log/cycle2.trace.json", ("log/",)),
                                 ("link", ("log",)), ("log/cycle1.trace.json.gz", ("log", "--gzip"))):
            self.refuse(2, ["--trace and --json are one file"], *small, "--json", json_file, "--trace", *trace)
        # Links either way, also to what is not there yet.
        (self.folder / "d").mkdir()
        (self.folder / "d/l").symlink_to("cycle1.trace.json")
        (self.folder / "d/cycle2.trace.json").symlink_to("t")
        for json_file in ("d/l", "d/t"):
            for there in (False, True):
                if there:
                    (self.folder / json_file).write_text("old")
                self.refuse(2, ["--trace and --json are one file"], *small, "--trace", "d", "--json", json_file)
        own = self.profile("--model", "log/cycle2.trace.json")
        self.refuse(2, ["--trace and --model are one file"], *own, "--batch", 2, "--trace", "log")
        (self.folder / "log/keras_batchsize3").mkdir()
        self.refuse(2, ["--trace and --json are one file"], *self.profile(*keras), "--batch", "2,3", "--trace", "log",
                    "--json", "log/keras_batchsize3/cycle2.trace.json")
        # Those that no cycle of the run has.
        cycle = ("--trace", "log", "--wait", 0, "--active", 1, "--repeat", 1)
        for json_file in ("log/cycle2.trace.json", "log/cycle0.trace.json", "log/cycle01.trace.json", "cycle1.trace.json",
                          "log/cycle1.trace.json.gz", "log/cycle1.json"):
            self.succeed(*small, *cycle, "--json", json_file)
            self.assertEqual(json.loads((self.folder / json_file).read_text())["command"], "profile")

    def test_a_link_stays_a_link(self):
        for there in (True, False):
            (self.folder / "link").symlink_to("real.json")
            if there:
                (self.folder / "real.json").write_text("old")
            self.found("segment", "--image", 32, "--max", 1, "--no-overlap", "--csv", "link")
            self.assertTrue((self.folder / "link").is_symlink())
            self.assertIn("batch_per_gpu", (self.folder / "real.json").read_text())
            for name in ("link", "real.json"):
                (self.folder / name).unlink()

    def test_csv_on_standard_output(self):
        small = ("segment", "--image", 32, "--max", 1, "--no-overlap")
        rows = list(csv.DictReader(self.succeed(*self.find_batch(*small, "--csv", "-")).stdout.splitlines()))
        self.assertEqual([row["batch_per_gpu"] for row in rows], ["1"])
        self.refuse(2, ["--json -", "--csv -"], *self.find_batch(*small, "--csv", "-", "--json", "-"))
        self.refuse(2, ["--max-repeats is 2", "--repeats on, 5"], "find-batch", *small, "--repeats", 5,
                    "--max-repeats", 2)
        os.mkfifo(self.folder / "fifo")
        self.refuse(3, ["--config fifo", "not a regular file"], "find-batch", *small, "--config", "fifo")

    def test_find_batch_splits_a_step(self):
        small = ("segment", "--image", 32, "--max", 2, "--no-overlap")
        for row in self.found(*small, "--split", "--csv", "sizes.csv")["rows"]:
            self.assertEqual(list(row["split_ms"]),
                             ["kernel", "copy", "memset", "runtime", "data_loader", "host", "rest"])
            self.assertEqual(list(row["hidden_ms"]), list(row["split_ms"])[:-1])
            self.assertGreater(row["split_ms"]["kernel"], 0)
            self.assertTrue(all(ms >= 0 for ms in (*row["split_ms"].values(), *row["hidden_ms"].values())))
            self.assertEqual((row["split_source"], row["sm_fill_pct"]), ("host", None))
        with open(self.folder / "sizes.csv", encoding="utf-8") as file:
            self.assertTrue(all(float(row["split_ms.kernel"]) > 0 for row in csv.DictReader(file)))
        self.assertNotIn("split_ms", self.found(*small)["rows"][0])
        for row in self.found(*small, "--split", "--schedule", "graph")["rows"]:
            self.assertEqual((row["split_ms"], row["split_reason"]), (None, "a captured step is not recorded"))

    def test_find_batch(self):
        small = ("--image", 32, "--max", 4)
        before = self.files()
        result = self.found("segment", *small, "--samples", 9)
        self.assertEqual(self.files(), before)
        self.check_found(result, [1, 2, 4])
        self.assertIn("the largest one asked for", result["largest_feasible"]["reason"])
        for row in result["rows"]:
            times = list(row["stage_ms"].values())
            self.assertEqual(list(row["stage_ms"]), ["copy", "encode", "train"])
            self.assertEqual((row["t_a_ms"], row["t_b_ms"]), (max(times[:2]), times[2]))
            self.check_what_overlap_does(row)
        self.assertEqual([(row["steps_per_epoch"], row["last_batch"]) for row in result["rows"]],
                         [(9, 1), (5, 1), (3, 1)])
        text = self.succeed(*self.find_batch("segment", *small, "--no-overlap", "--schedule", "serial")).stdout
        for word in ("samples/s", "largest feasible       4  ", "best throughput ", "recommended "):
            self.assertIn(word, text)
        for workload in (("classify", "--augment", "cpu", "--input", "loader"), ("classify",)):
            self.check_found(self.found(*workload, *small), [1, 2, 4])
        (self.folder / "pixels.json").write_text(network(OF_PIXELS, frozen=FROZEN))
        for file in ("pixels.json", DOCS / "examples/small.json"):
            self.check_found(self.found("--model", file, "--max", 4), [1, 2, 4])

    def test_find_batch_fills_the_time_of_a_trial(self):
        """Steps of microseconds: many more than the three asked for, in each trial and in each order."""
        options = ("--model", self.KERAS, "--max", 2, "--input", "loader")
        result = json.loads(self.succeed(*self.find_batch(*options)[:-2], "--trial-ms", 40, "--flat", 0, "--refine", 0,
                                         "--json", "-").stdout)
        for row in result["rows"]:
            self.assertEqual((row["status"], row["repeats"]), ("ok", 2))
            self.assertGreater(row["steps_run"], 6)
            # The two trials, from the speed that they had.
            seconds = row["steps_run"] * row["global_batch"] / row["throughput_mean"]
            self.assertGreater(seconds, 0.99 * 2 * 0.04 * row["throughput_min"] / row["throughput_mean"])
            self.assertGreater(row["throughput_ci95"], 0)
        self.refuse(2, ["--trial-ms is 40", "at most --trial-seconds, 0.01"],
                    *self.find_batch(*options)[:-2], "--trial-ms", 40, "--trial-seconds", 0.01)

    def test_find_batch_as_a_table(self):
        """The rows of --csv are those of --json."""
        options = ("--model", self.KERAS, "--data", f"csv:{self.TRIAL}", "--max", 2, "--with-accuracy", 2, "--samples", 3)
        result = self.found(*options, "--csv", "sizes.csv")
        with open(self.folder / "sizes.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual(len(lines), len(result["rows"]))
        for line, row in zip(lines, result["rows"]):
            flat = {}
            for name, value in row.items():
                flat |= {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
            self.assertEqual(list(line), list(flat))
            for name, value in flat.items():
                if value is None:
                    self.assertEqual(line[name], "", name)
                elif isinstance(value, str):
                    self.assertEqual(line[name], value, name)
                else:
                    self.assertEqual([json.loads(part) for part in line[name].split(";")],
                                     value if isinstance(value, list) else [value], name)
        # Of three samples batches of two leave one.
        note, = (note for note in result["notes"] if "single sample" in note)
        self.assertTrue(note.startswith("Batch 2: "), note)
        skipped = self.found("segment", "--image", 32, "--max", 2, "--budget-s", 0.001, "--csv", "sizes.csv")
        with open(self.folder / "sizes.csv", newline="") as file:
            lines = list(csv.DictReader(file))
        self.assertEqual([line["reason"] for line in lines], ["", skipped["rows"][1]["reason"]])
        self.assertEqual(lines[1]["throughput_mean"], "")
        self.refuse(2, ["--json", "--csv"], *self.find_batch("segment", "--csv", "a", "--json", "a"))
        self.refuse(3, "nowhere/f.csv", *self.find_batch("segment", "--csv", "nowhere/f.csv"))

    def test_find_batch_within_a_budget(self):
        """A budget that one trial uses up: the smallest size answers, the others say why they do not."""
        result = self.found("segment", "--image", 32, "--max", 4, "--budget-s", 0.001)
        self.assertEqual([row["status"] for row in result["rows"]], ["ok", "skipped", "skipped"])
        for row in result["rows"][1:]:
            self.assertRegex(row["reason"], r"^no time is left for it of the 0\.0005 s that the search may take$")
        self.assertNotIn("overlap", result["rows"][0])
        self.assertIn("1 size has no trials of the other order: no time was left of the 0.001 s of --budget-s.",
                      result["notes"])
        self.assertEqual(result["recommended"]["batch"], 1)
        self.check_found(self.found("segment", "--image", 32, "--max", 4, "--budget-s", 1e6), [1, 2, 4])
        self.refuse(2, ["--budget-s", "'0'"], *self.find_batch("segment", "--budget-s", 0))

    def test_find_batch_knows_the_memory_before_it_tries(self):
        options = ("segment", "--image", 64, "--max", 8, "--no-overlap")
        need = {row["global_batch"]: row["predicted_bytes"] for row in self.found(*options)["rows"]}
        limit = (need[4] >> 20) + 1
        self.assertLess(limit << 20, need[8])
        found = self.found(*options, "--memory-limit", limit, "--margin", 0)
        self.assertEqual(found["memory_bytes"], limit << 20)
        self.check_found(found, [1, 2, 4, 8])
        self.assertEqual(found["largest_feasible"]["batch"], 4)
        self.assertIn(f"needs {need[8]} bytes, {limit << 20} are", found["rows"][-1]["reason"])
        self.refuse(5, ["no batch size fits", "batch 1: needs", f"{1 << 20} are",
                        "hint: use smaller pictures or a smaller network\n"],  # the host has no bf16
                    *self.find_batch("segment", "--image", 64, "--memory-limit", 1, "--quiet"))

    def test_find_batch_knows_what_kernels_take(self):
        """Fewer than 2^31 pixels: sizes above it are not looked at, and do not end the search."""
        result = self.succeed("find-batch", "segment", "--image", 256, "--no-overlap", "--memory-limit", 800, "--flat", 0,
                              "--device", "host", "--warmup", 1, "--steps", 1, "--repeats", 1, "--trial-ms", 0,
                              "--json", "-")
        found = json.loads(result.stdout)
        self.assertEqual(found["rows"][-1]["global_batch"], 2**31 // 256**2 - 1)
        self.assertEqual(found["rows"][-1]["status"], "skipped")
        self.assertRegex(found["largest_feasible"]["reason"], r"batch \d+: needs \d+ bytes, \d+ are to be had")

    def test_train_finds_its_batch(self):
        """The size is one of those tried, and trials leave nothing behind: the same training again."""
        for train in (self.train("--eval", 4), self.classify("--epochs", 1, "--augment", "cpu")):
            result = self.succeed(*train, "--batch", "auto", "--trial-ms", 2, "--json", "-")
            found = json.loads(result.stdout)["summary"]
            batch = found["batch"]
            self.assertIn(f"trial of batch {batch}\n", result.stderr)
            self.assertIn(f"batch {batch}: {found['batch_reason']}", result.stderr)
            self.assertEqual(found["config"]["batch"], batch)
            given = self.summary(*train, "--batch", batch)
            self.assertNotIn("batch_reason", given)
            self.assertEqual(found["weights_sha256"], given["weights_sha256"])
        self.assertLessEqual(batch, 20)  # the pictures there are
        self.refuse(2, ["--batch", "'0'", "or auto"], *self.train("--batch", 0))

    def test_find_batch_with_accuracy(self):
        """Scores are those of the same training by `train`, beside the speed."""
        options = ("--model", self.KERAS, "--data", f"csv:{self.TRIAL}", "--epochs", 2, "--lr", 0.1)
        arguments = (*options, "--min", 16, "--max", 64, "--with-accuracy", 3, "--seed", 4, "--no-overlap")
        result = self.found(*arguments)
        self.check_found(result, [16, 32, 64])
        accuracy = result["accuracy"]
        held_out = accuracy["eval"]
        samples = 2 * (2100 - held_out)
        self.assertEqual(
            {key: accuracy[key] for key in ("score", "seeds", "first_seed", "epochs", "train_samples", "lr", "momentum")},
            {"score": "accuracy", "seeds": 3, "first_seed": 4, "epochs": 2, "train_samples": samples, "lr": 0.1,
             "momentum": 0.9})
        self.assertRegex(accuracy["comparison"], r"^Batch (16|32|64) has the best mean accuracy, 0\.\d{4}; ")
        for row in result["rows"]:
            batch, scores = row["global_batch"], row["scores"]
            self.assertEqual((row["train_samples"], row["train_steps"], row["diverged"]),
                             (samples, 2 * -(-samples // 2 // batch), 0))
            self.assertEqual(row["steps_per_epoch"], row["train_steps"] / 2)
            self.assertEqual(len(scores), 3)
            mean = sum(scores) / 3
            self.assertAlmostEqual(row["score_mean"], mean)
            self.assertAlmostEqual(row["score_stddev"], (sum((s - mean) ** 2 for s in scores) / 2) ** 0.5)
            self.assertEqual((row["score_min"], row["score_max"]), (min(scores), max(scores)))
            for i in (0, 2):
                train = self.summary("train", *options, "--batch", batch, "--seed", 4 + i, "--device", "host")
                self.assertEqual(train["accuracy"], scores[i], (batch, i))
        below = accuracy["comparison"].partition("apart: batch ")[2].rstrip(".").split(", ")
        self.assertEqual(any("recommended for its speed" in note for note in result["notes"]),
                         str(result["recommended"]["batch"]) in below)
        text = self.succeed(*self.find_batch(*arguments, "--flat", 0, "--refine", 0)).stdout
        for words in ("  accuracy", "held out, mean of 3 seeds after", accuracy["comparison"].split(";")[0]):
            self.assertIn(words, text)

    def test_find_batch_with_accuracy_of_one_seed_and_of_diverging_ones(self):
        options = ("--model", self.KERAS, "--data", f"csv:{self.TRIAL}", "--max", 1, "--no-overlap", "--with-accuracy")
        wide = self.found(*options[:4], "--no-overlap", "--min", 1600, "--samples", 100000, "--with-accuracy", 1)
        self.assertEqual([row["global_batch"] for row in wide["rows"]], [1600, 1681])  # the records there are
        # Fewer samples than there are cut the sizes and what is said of an epoch, and no training.
        few = self.found(*options[:4], "--no-overlap", "--samples", 3, "--with-accuracy", 1)
        self.assertEqual([(row["global_batch"], row["steps_per_epoch"], row["train_steps"]) for row in few["rows"]],
                         [(1, 3, 1681), (2, 2, 841), (3, 1, 561)])
        row, = self.found(*options, 1)["rows"]
        self.assertIsNone(row["score_stddev"])
        self.assertEqual([row["score_mean"]], row["scores"])
        result = self.found(*options, 2, "--lr", 1e30)
        row, = result["rows"]
        self.assertEqual((row["scores"], row["diverged"], row["score_mean"]), ([None, None], 2, None))
        self.assertIn("diverged at batch 1", result["accuracy"]["comparison"])

    def test_find_batch_with_accuracy_of_pictures(self):
        result = self.found("classify", "--image", 32, "--augment", "none", "--max", 2, "--no-overlap", "--data",
                            f"fashion-mnist:{self.data}", "--with-accuracy", 1)
        self.assertEqual((result["accuracy"]["score"], result["accuracy"]["data"]),
                         ("accuracy", f"fashion-mnist:{self.data}"))
        self.assertEqual([len(row["scores"]) for row in result["rows"]], [1, 1])

    def test_train_chooses_its_schedule(self):
        """By trials of the training at hand; bits do not depend on it."""
        for train in (self.train("--eval", 4), self.rows("--epochs", 1)):
            result = self.succeed(*train, "--schedule", "auto", "--trial-ms", 20, "--json", "-")
            found = json.loads(result.stdout)["summary"]
            trials = found["schedule_trials"]
            self.assertEqual(found["config"]["schedule"], found["schedule"])
            self.assertEqual(found["schedule_reason"], trials["overlap"])
            self.assertIn(f"schedule {found['schedule']}: {found['schedule_reason']}\n", result.stderr)
            pays = self.check_what_overlap_does(trials)
            self.assertEqual(found["schedule"], "overlap" if pays else "serial")
            given = self.summary(*train, "--schedule", "overlap")
            self.assertNotIn("schedule_reason", given)
            self.assertEqual(found["weights_sha256"], given["weights_sha256"])
        both = self.summary(*self.rows("--epochs", 1), "--batch", "auto", "--schedule", "auto", "--trial-ms", 2)
        self.assertLessEqual({"batch_reason", "schedule_reason"}, both.keys())

    def test_find_batch_refuses(self):
        self.refuse(2, "no workload for 'find-batch'; allowed: segment, classify", "find-batch")
        self.refuse(2, "--max needs --model FILE", "find-batch", "--max", 4)
        self.refuse(2, "two networks", "find-batch", "--model", DOCS / "examples/small.json", "segment")
        quiet = ("--image", 32, "--quiet")
        self.refuse(2, ["the smallest one asked for is 8", "data set is 5"],
                    *self.find_batch("segment", *quiet, "--min", 8, "--samples", 5))
        self.refuse(2, ["batch 9", "1 to 4"], *self.find_batch("segment", *quiet, "--max", 4, "--batch", "2,9"))
        self.refuse(2, ["--augment cpu", "--input device"],
                    *self.find_batch("classify", *quiet, "--augment", "cpu"))
        self.refuse(3, "nowhere.json", *self.find_batch("--model", "nowhere.json"))
        for option in (("--epochs", 2), ("--lr", 0.1), ("--data", "synthetic")):
            self.refuse(2, [f"{option[0]} does nothing without --with-accuracy"],
                        *self.find_batch("--model", self.KERAS, *option))
        for workload, option in (("classify", ("--broken", "skip")), ("segment", ("--garments", 2)),
                                 ("segment", ("--garment-scale", 0.5))):
            self.refuse(2, [f"{option[0]} does nothing without --with-accuracy"],
                        *self.find_batch(workload, *quiet, "--max", 1, *option))
        for workload in ("classify", "segment"):
            stored = self.found(workload, *quiet, "--max", 1, "--no-overlap")["config"]
            self.assertEqual({"data", "broken", "garments", "garment-scale", "epochs", "lr"} & stored.keys(), set())
        self.refuse(2, ["--with-accuracy: synthetic has nothing held out"],
                    *self.find_batch("segment", *quiet, "--data", "synthetic", "--with-accuracy", 2))
        self.refuse(2, ["--data is missing"], *self.find_batch("--model", self.KERAS, "--with-accuracy", 2))
        self.refuse(3, "nowhere/f.json", *self.find_batch("segment", "--json", "nowhere/f.json"))

    def profile(self, *arguments):
        return ("profile", *arguments, "--device", "host", "--quiet")

    def check_trace(self, path, steps):
        """What Perfetto wants, and that the trace is of those steps. Returns it."""
        trace = json.loads(Path(path).read_text())
        events = [e for e in trace["traceEvents"] if e["ph"] != "M"]
        names = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["name"] == "thread_name"}
        groups = {e["pid"] for e in trace["traceEvents"] if e["name"] == "process_name"}
        times = [e["ts"] for e in events]
        self.assertEqual(times, sorted(times))
        self.assertGreater(len(events), 0)
        for event in events:
            self.assertIn(event["pid"], groups)
            if event["ph"] == "X":
                self.assertGreaterEqual(event["dur"], 0)
                self.assertIn((event["pid"], event["tid"]), names)
        self.assertEqual([e["args"]["step"] for e in events if e.get("cat") == "step"], steps)
        stages = {e["args"]["stage"] for e in events if e.get("cat") in ("kernel", "copy")}
        self.assertIn("train", stages)  # a short window need not meet the others
        return trace, {e["name"] for e in events}, stages

    def profiled(self, *arguments):
        result = json.loads(self.succeed(*self.profile(*arguments, "--json", "-")).stdout)
        for row in result["rows"]:
            self.assertAlmostEqual(sum(row["split_ms"].values()), row["step_ms"], places=9)
            self.assertEqual(sum(t["last_step"] - t["first_step"] + 1 for t in row["traces"]), row["steps"])
            self.assertEqual(sum(p["bytes"] for p in row["memory"]["parts"]),
                             row["memory"]["device_bytes"] + row["memory"]["pinned_bytes"])
            self.assertEqual(len(row["traces"]), row["cycles"])
            self.assertGreater(row["kernel_busy_pct"], 0)
            self.assertLessEqual(row["kernel_busy_pct"], 100)
            for key in ("sm_fill", "nvml_util"):
                self.assertIsNone(row[key + "_pct"])
                self.assertIn("no GPU", row[key + "_reason"])
            self.assertGreater(row["plain_step_ms"], 0)
            self.assertEqual(row["source"], "host")
            self.assertEqual(row["dropped_records"], 0)
        return result["rows"]

    def test_profile(self):
        small = ("segment", "--image", 32, "--batch", 4)
        row, = self.profiled(*small, "--trace", "log", "--memory", "--shapes", "--with-path")
        self.assertEqual((row["cycles"], row["steps"]), (2, 6))
        self.assertEqual(sorted(path.name for path in (self.folder / "log").iterdir()),
                         ["cycle1.trace.json", "cycle2.trace.json"])
        trace, names, stages = self.check_trace(self.folder / "log/cycle1.trace.json", [7, 8, 9])
        self.check_trace(self.folder / "log/cycle2.trace.json", [17, 18, 19])
        events = trace["traceEvents"]
        self.assertEqual(stages, {"copy", "encode", "train"})
        self.assertLessEqual({"wait for a batch", "issue a step", "streams at work"}, names)
        self.assertTrue(any(e["name"].startswith("scratch of train") for e in events if e["ph"] == "C"))
        kernel = next(e for e in events if e.get("cat") == "kernel")
        self.assertIn("/", kernel["args"]["path"])
        self.assertIn("x", kernel["args"]["shapes"])
        text = self.succeed(*self.profile(*small, "--json", "profile.json")).stdout
        self.succeed("report", "profile.json", "--out", "page.html")
        self.assertIn("velocity", (self.folder / "page.html").read_text())
        for words in ("6 steps in 2 cycles", "kernel-busy", "SM fill", "NVML's counter", "velocity", "ms a step"):
            self.assertIn(words, text)

    def test_profile_ends_within_a_cycle(self):
        row, = self.profiled("segment", "--image", 32, "--batch", 4, "--wait", 1, "--steps", 8,
                             "--trace", "log")
        self.assertEqual((row["cycles"], row["steps"]), (2, 4))
        self.check_trace(self.folder / "log/cycle1.trace.json", [2, 3, 4])
        self.check_trace(self.folder / "log/cycle2.trace.json", [7])

    def test_profile_of_several_sizes_and_schedules(self):
        rows = self.profiled("segment", "--image", 32, "--batch", "2,4", "--schedule", "serial", "--skip-first", 2,
                             "--wait", 0, "--warmup", 1, "--active", 1, "--repeat", 3, "--trace", "log/deep")
        self.assertEqual([row["batch"] for row in rows], [2, 4])
        for row in rows:
            self.assertEqual((row["cycles"], row["steps"], row["overlap_pct"]), (3, 3, 0))
            for cycle, step in enumerate([3, 5, 7], 1):
                self.check_trace(self.folder / f"log/deep/segment_batchsize{row['batch']}/cycle{cycle}.trace.json", [step])
        rows = self.profiled("classify", "--image", 32, "--batch", 2, "--wait", 0, "--warmup", 0, "--active", 2,
                             "--repeat", 0, "--steps", 4)
        self.assertEqual((rows[0]["cycles"], rows[0]["steps"]), (2, 4))
        # --steps are those of the run: the ones that are not recorded are among them.
        row, = self.profiled("segment", "--image", 32, "--batch", 2, "--skip-first", 3, "--wait", 2, "--warmup", 1,
                             "--active", 2, "--repeat", 0, "--steps", 3 + 5 + 4)
        self.assertEqual((row["cycles"], row["steps"]), (2, 2 + 1))
        help_text = " ".join(self.succeed("profile", "segment", "--help").stdout.split())
        self.assertIn("steps of the run, those of --skip-first, --wait and --warmup among them", help_text)
        self.assertIn("0: as many as --steps have room for", help_text)
        self.assertIn("not_warm", [finding["rule"] for finding in rows[0]["findings"]])
        self.assertIn("augment", rows[0]["stage_ms"])
        self.assertIsNone(rows[0]["traces"][0]["file"])

    def test_profile_for_another_tool(self):
        small = ("segment", "--image", 32, "--batch", 2, "--source", "none")
        result = json.loads(self.succeed(*self.profile(*small, "--json", "-")).stdout)
        self.assertEqual(result["rows"], [{"batch": 2, "source": "none", "cycles": 2, "steps": 6}])
        self.assertIn("6 steps in 2 cycles, marked", self.succeed(*self.profile(*small)).stdout)
        self.refuse(2, ["--source none", "--trace"], *self.profile(*small, "--trace", "log"))

    def test_profile_cuts_a_trace_and_says_so(self):
        arguments = ("segment", "--image", 32, "--batch", 1, "--active", 150, "--repeat", 1, "--shapes", "--with-path",
                     "--trace", "log", "--trace-limit", 1, "--json", "-")
        done = self.succeed("profile", *arguments, "--device", "host", "--quiet")  # a warning is no note
        trace, = json.loads(done.stdout)["rows"][0]["traces"]
        self.assertGreater(trace["dropped_events"], 0)
        self.assertLessEqual((self.folder / trace["file"]).stat().st_size, 1 << 20)
        self.assertIn(f"{trace['dropped_events']} events were dropped", done.stderr)
        written = json.loads((self.folder / trace["file"]).read_text())
        self.assertEqual(written["otherData"]["dropped_events"], trace["dropped_events"])

    def test_profile_packs_a_trace(self):
        done = self.succeed(*self.profile("segment", "--image", 32, "--batch", 1, "--gzip", "--trace", "log", "--json", "-"))
        files = [trace["file"] for trace in json.loads(done.stdout)["rows"][0]["traces"]]
        self.assertEqual(files, ["log/cycle1.trace.json.gz", "log/cycle2.trace.json.gz"])
        self.assertEqual(sorted(path.name for path in (self.folder / "log").iterdir()),
                         [Path(file).name for file in files])
        for file in files:
            packed = (self.folder / file).read_bytes()
            text = gzip.decompress(packed)
            self.assertLess(len(packed), len(text) / 4)
            self.assertTrue(json.loads(text)["traceEvents"])
        self.refuse(2, ["--gzip", "--trace DIR"], *self.profile("segment", "--image", 32, "--gzip"))

    def test_profile_refuses(self):
        small = ("segment", "--image", 32)
        self.refuse(2, "no workload for 'profile'; allowed: segment, classify", "profile")
        self.refuse(2, ["--steps 7", "number 7", "nothing would be recorded"], *self.profile(*small, "--steps", 7))
        self.refuse(2, ["--repeat 0", "--steps N"], *self.profile(*small, "--repeat", 0))
        self.refuse(2, ["--active", "0"], *self.profile(*small, "--active", 0))
        self.refuse(2, ["--wait", "-1"], *self.profile(*small, "--wait", -1))
        self.refuse(2, ["--memory", "--trace DIR"], *self.profile(*small, "--memory"))
        self.refuse(2, ["graph", "not in this version"], *self.profile(*small, "--schedule", "graph"))
        self.refuse(2, ["--source events", "host"], *self.profile(*small, "--source", "events"))
        self.refuse(2, "not in this version", "profile", "resnet18")
        (self.folder / "file").write_text("")
        self.refuse(3, "--trace file/log", *self.profile(*small, "--trace", "file/log"))

    def test_bench_sees_a_wrong_bit(self):
        for scheme in ("torch", "he"):
            result = self.run_program(*self.bench("--json", "-", "--init-scheme", scheme),
                                      environment={"TANDEM_TEST_FLIP_WEIGHT_BIT": "1"})
            self.assertEqual(result.returncode, 1)
            self.assertEqual([row["verified"] for row in json.loads(result.stdout)["rows"]],
                             [False, False])
            self.assertIn("tandem: 2 of 2 rows differ", result.stderr)

    # --- bench --serve ---------------------------------------------------------------------------

    def serve(self, lines, *arguments, environment=None):
        """What was written, line by line, and the result."""
        result = subprocess.run([PROGRAM, *map(str, self.bench("--serve", *arguments))], cwd=self.folder,
                                input=lines, text=True, capture_output=True, timeout=300,
                                env={**os.environ, **(environment or {})})
        return [json.loads(line) for line in result.stdout.splitlines()], result

    def test_serve_measures_the_same_rows_block_after_block(self):
        for batches, arguments in (((1, 2), ("--input", "device")), ((2,), ("--momentum", 0.9))):
            (ready, *blocks), result = self.serve(
                '{}\n{"observe": 0.5}\n{}\n', *arguments, "--batch", ",".join(map(str, batches)),
                "--schedule", "serial,overlap,graph")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIs(ready["ready"], True)
            self.assertLessEqual({"cpu", "version", "commit"}, ready["environment"].keys())
            self.assertEqual(len(blocks), 3)
            for number, block in enumerate(blocks):
                self.assertEqual([(row["batch"], row["schedule"]) for row in block["rows"]],
                                 [(batch, name) for batch in batches for name in ("serial", "overlap", "graph")])
                for row, first in zip(block["rows"], blocks[0]["rows"]):
                    self.assertLessEqual(ROW_KEYS, row.keys())
                    self.assertIs(row["verified"], True)
                    for name in ("weights_sha256", "plan_hash", "memory_bytes", "steps", "prepare_s", "capture_s"):
                        self.assertEqual(row[name], first[name])
                    # Only where the request asks for them; what runs then leaves no trace.
                    self.assertEqual(list(row["stage_ms"]), ["copy", "encode", "train"] if number == 1 else [])

    def test_serve_is_bench_in_another_order(self):
        (_, block), _ = self.serve("{}\n")
        rows = json.loads(self.succeed(*self.bench("--json", "-")).stdout)["rows"]
        self.assertEqual([row.keys() for row in block["rows"]], [row.keys() for row in rows])
        self.assertEqual([row["weights_sha256"] for row in block["rows"]], [row["weights_sha256"] for row in rows])

    def test_serve_classifies(self):
        for augment in ("gpu", "cpu"):
            result = subprocess.run(
                [PROGRAM, "bench", "classify", "--serve", "--image", "32", "--batch", "2", "--steps", "6",
                 "--windows", "3", "--warmup", "2", "--device", "host", "--augment", augment],
                input="{}\n" * 3, text=True, capture_output=True, timeout=300, check=True)
            hashes = {row["weights_sha256"] for line in result.stdout.splitlines()[1:]
                      for row in json.loads(line)["rows"] if row["verified"]}
            self.assertEqual((len(result.stdout.splitlines()), len(hashes)), (4, 1), result.stdout)

    def test_serve_sees_a_wrong_bit(self):
        (_, *blocks), result = self.serve("{}\n{}\n{}\n", environment={"TANDEM_TEST_FLIP_WEIGHT_BIT": "1"})
        self.assertEqual(result.returncode, 1)
        self.assertEqual([[row["verified"] for row in block["rows"]] for block in blocks], [[False] * 2] * 3)
        self.assertIn("tandem: 6 of 6 rows differ", result.stderr)

    def test_serve_without_a_request(self):
        lines, result = self.serve("")
        self.assertEqual((result.returncode, [list(line) for line in lines]), (0, [["ready", "environment"]]))

    def test_serve_refuses_what_is_no_request(self):
        for request in ("", "hello", "[]", "null", '{"observe": -1}', '{"observe": 3601}', '{"observe": "1"}',
                        '{"observe": null}', '{"other": 1}', '{"observe": 1, "other": 1}', '{} {}'):
            lines, result = self.serve(f"{{}}\n{request}\n{{}}\n", "--quiet")
            self.assertEqual((result.returncode, len(lines)), (2, 2), request)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn(f"the request '{request}' is not allowed", result.stderr)
        self.refuse(2, ["--json", "--serve"], *self.bench("--serve", "--json", "-"))
        self.refuse(2, ["--observe", "--serve"], *self.bench("--serve", "--observe", 1))

    def test_compare_gpu_asks_for_blocks(self):
        """With a program in the place of Python that says what a PyTorch peer could."""
        python = self.folder / "python"
        python.write_text(f"""#!{sys.executable}
import json, sys
def reply(value):
    print(json.dumps(value), flush=True)
reply({{"environment": {{"gpu": None, "torch": "2", "cuda": "13", "cudnn": 9, "python": "3"}}}})
for line in sys.stdin:
    request = json.loads(line)
    rate = 100.0 if request.get("config", {{}}).get("layout") == "nchw" else 50.0
    reply({{"steps_per_s": {{"median": rate}}}} if "config" in request else {{"wrong": []}})
""")
        python.chmod(0o755)
        result = subprocess.run(
            [sys.executable, DOCS.parent / "bench/compare_gpu.py", "--tandem", PROGRAM, "--python", python,
             "--device", "host", "--image", "32", "--precision", "fp32", "--segment", "1", "--classify-loader",
             "2", "--blocks", "3", "--seconds", "0.02", "--json", self.folder / "results.json"],
            text=True, capture_output=True, timeout=300)
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertNotIn("FAILED", result.stdout + result.stderr)
        rows = json.loads((self.folder / "results.json").read_text())["rows"]
        self.assertEqual({(row["variant"], len(row["blocks"])) for row in rows if row["input"] == "device"},
                         {("serial", 3), ("overlap", 3), ("graph", 3), ("eager nchw serial", 3),
                          ("eager nhwc serial", 1)})
        self.assertEqual(len([row for row in rows if row["input"] == "loader"]), 6)
        for row in rows:
            if row["engine"] == "tandem":
                self.assertIs(row["verified"], True)
                self.assertIn("train", row["stage_ms"])

    # --- classification --------------------------------------------------------------------------

    def test_classify_is_the_same_in_every_order_and_place(self):
        hashes = {}
        for augment in ("none", "cpu", "gpu"):
            for schedule, workers in (("serial", 1), ("overlap", 3)):
                summary = self.summary(*self.classify("--augment", augment, "--schedule", schedule,
                                                      "--workers", workers))
                hashes.setdefault(augment, set()).add((summary["weights_sha256"], str(summary["epochs"])))
        self.assertEqual({name: len(values) for name, values in hashes.items()},
                         {"none": 1, "cpu": 1, "gpu": 1})
        self.assertEqual(hashes["cpu"], hashes["gpu"])
        self.assertNotEqual(hashes["cpu"], hashes["none"])
        # Each of these changes something.
        base = self.classify("--augment", "gpu", "--epochs", 1, "--eval", 0)
        seen = {self.summary(*base, *more)["weights_sha256"]
                for more in ((), ("--seed", 1), ("--no-shuffle",), ("--crop", 20), ("--degrees", 0),
                             ("--blur-taps", 0), ("--sigma", "1,2"), ("--flip", 0), ("--padding", 4),
                             ("--rotation", "bilinear"), ("--border", "constant"), ("--fill", 90),
                             ("--mean", 0.3), ("--std", "0.5,0.6,0.7"))}
        self.assertEqual(len(seen), 14)

    def test_every_epoch_is_another_one(self):
        def epochs(*arguments):
            """Losses of two epochs of weights that stay as they are."""
            self.succeed(*self.classify("--lr", 0, "--eval", 0, "--log", "log", *arguments))
            losses = [line["loss"] for line in map(json.loads, (self.folder / "log").read_text().splitlines())
                      if "loss" in line]
            return losses[:3], losses[3:]

        first, second = epochs("--no-shuffle")
        self.assertEqual(first, second)
        for arguments in ((), ("--no-shuffle", "--augment", "cpu"), ("--no-shuffle", "--augment", "gpu")):
            first, second = epochs(*arguments)
            self.assertNotEqual(first, second)
        # Each record once: the mean over all is the same in any order, up to rounding.
        for seed in (0, 1, 2):
            losses, _ = epochs("--batch", 20, "--seed", seed)
            self.assertEqual(len(losses), 2)
            self.assertLess(abs(losses[0] - losses[1]), 1e-5)

    def test_classify_writes_what_it_did(self):
        result = self.succeed(*self.classify("--augment", "gpu", "--out", "run", "--log", "log"))
        for word in ("epoch", "mean loss", "accuracy", "mean of classes", "Trouser"):
            self.assertIn(word, result.stdout)
        self.assertIn("epoch 2: mean loss", result.stderr)
        self.assertEqual(sorted(path.name for path in (self.folder / "run").iterdir()),
                         ["classifier.safetensors", "encoder.safetensors", "log.jsonl"])
        lines = [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]
        # Two epochs of 20 records: 8, 8 and 4.
        self.assertEqual([next(iter(line.items())) for line in lines[:-1]],
                         [("step", 0), ("step", 1), ("step", 2), ("epoch", 1),
                          ("step", 3), ("step", 4), ("step", 5), ("epoch", 2)])
        summary = lines[-1]["summary"]
        self.assertEqual(summary["epochs"], [lines[3], lines[7]])
        losses = [line["loss"] for line in lines if "loss" in line]
        self.assertAlmostEqual(lines[7]["mean_loss"], sum(losses[3:]) / 3)
        self.assertEqual((lines[7]["accuracy"], lines[7]["mean_class_accuracy"]),
                         (summary["accuracy"], summary["mean_class_accuracy"]))
        self.assertEqual((summary["workload"], summary["steps"], summary["eval"], summary["classes"],
                          summary["broken_files"]), ("classify", 6, 20, 10, []))
        self.assertEqual([sum(row) for row in summary["confusion"]], [2] * 10)
        right = [row[c] for c, row in enumerate(summary["confusion"])]
        self.assertEqual(summary["class_accuracy"], [count / 2 for count in right])
        self.assertAlmostEqual(summary["accuracy"], sum(right) / 20)
        # What is stored with the result gives the same run again.
        (self.folder / "again.json").write_text(json.dumps(
            {key: value for key, value in summary["config"].items() if key not in ("out", "log")}))
        self.assertEqual(self.summary("train", "classify", "--config", "again.json")["weights_sha256"],
                         summary["weights_sha256"])

        # The encoder goes on into a segmenter, unchanged, and both files start another classifier.
        encoder = self.folder / "run/encoder.safetensors"
        self.succeed(*self.train("--init", encoder, "--out", "segmenter"))
        self.assertEqual((self.folder / "segmenter/encoder.safetensors").read_bytes(), encoder.read_bytes())
        starts = [self.summary(*self.classify("--epochs", 1, *more))["weights_sha256"]
                  for more in ((), ("--init", encoder), ("--init", "run/classifier.safetensors"))]
        self.assertEqual(len(set(starts)), 3)
        self.refuse(3, "decoder.safetensors", *self.classify("--init", "segmenter/decoder.safetensors"))
        self.refuse(3, "classifier.safetensors",
                    *self.classify("--init", "run/classifier.safetensors", "--image", 64))

        # Scored again, the middle of each picture as in training.
        scored = json.loads(self.succeed("eval", "classify", "--weights", "run", "--device", "host", "--data",
                                         f"fashion-mnist:{self.data}", "--batch", 3, "--json", "-").stdout)
        for key in ("accuracy", "class_accuracy", "confusion", "class_names", "eval"):
            self.assertEqual(scored[key], summary[key])
        self.assertEqual(scored["config"]["crop"], 24)
        text = self.succeed("eval", "classify", "--weights", "run", "--data", f"fashion-mnist:{self.data}",
                            "--count", 5).stdout
        for word in ("5 pictures", "accuracy", "Trouser", "none here"):
            self.assertIn(word, text)

    def test_eval_segment(self):
        summary = self.summary(*self.train("--out", "run"))
        scored = json.loads(self.succeed(
            "eval", "segment", "--weights", "run", "--data", f"fashion-scenes:{self.data}", "--count", 4,
            "--device", "host", "--json", "-").stdout)
        for key in ("pixel_accuracy", "miou", "garment_miou", "garment_iou", "background_miou"):
            self.assertEqual(scored[key], summary[key])

    def test_eval_refuses(self):
        self.refuse(3, "none/classifier.safetensors", "eval", "classify", "--weights", "none")
        self.refuse(3, "none/encoder.safetensors", "eval", "segment", "--weights", "none")
        self.refuse(2, "--weights", "eval", "classify")
        self.succeed(*self.classify("--epochs", 1, "--out", "run"))
        scored = ("eval", "classify", "--weights", "run", "--device", "host")
        write_pictures(self.folder / "two")
        self.refuse(2, ["run", "is 10", "2 classes"], *scored, "--data", "folder:two")
        self.refuse(2, ["--count is 21", "1 to 20"], *scored, "--data", f"fashion-mnist:{self.data}",
                    "--count", 21)
        self.refuse(2, ["fashion-scenes", "label a picture"], *scored, "--data", "fashion-scenes")
        file = self.folder / "run/classifier.safetensors"
        file.write_bytes(file.read_bytes()[:-4] + struct.pack("<f", float("nan")))
        self.refuse(6, "classifier.safetensors", *scored, "--data", f"fashion-mnist:{self.data}")

    def test_eval_knows_the_frame_or_says_so(self):
        data = ("--data", f"fashion-mnist:{self.data}")
        summary = self.summary(*self.classify("--epochs", 1, "--augment", "gpu", "--out", "run"))
        scored = ("eval", "classify", "--weights", "run", "--device", "host", *data)
        frame = ("--crop", 24, "--padding", 0, "--fill", 0, "--mean", 0, "--std", 1)
        file = self.folder / "run/log.jsonl"
        good = file.read_text()
        kept = good.splitlines()[:-1]

        def changed(path, value):
            last = json.loads(good.splitlines()[-1])
            place = last["summary"]
            for key in path[:-1]:
                place = place[key]
            place[path[-1]] = value
            file.write_text("\n".join([*kept, json.dumps(last)]))

        for text in ("", "garbage", "\n".join(kept)):
            file.write_text(text)
            self.refuse(3, ["run/log.jsonl", "--crop, --padding, --fill, --mean, --std"], *scored)
        file.unlink()
        self.refuse(3, ["run/log.jsonl", ": --padding, --fill, --mean, --std"], *scored, "--crop", 24)
        found = json.loads(self.succeed(*scored, *frame, "--json", "-").stdout)
        self.assertEqual(found["confusion"], summary["confusion"])
        changed(["weights_sha256"], "0" * 64)
        self.refuse(3, ["run/log.jsonl", "other weights"], *scored)
        for name, value, words in (("crop", 0.5, "1 to 8192"), ("padding", -1, "0 to 8192"), ("fill", 256, "255"),
                                   ("mean", [], "1 or 3"), ("std", ["1"], "-1000000"), ("crop", None, "null")):
            changed(["config", name], value)
            self.refuse(3, ["run/log.jsonl", f"'{name}'", words], *scored)
        changed(["class_names", 2], "Hat")
        self.refuse(3, ["run/log.jsonl", 'class 2 was "Hat"', '"Pullover"'], *scored)
        changed(["class_names"], ["Hat"])
        self.refuse(3, ["run/log.jsonl", "1 classes", "has 10"], *scored)

    def test_files_that_are_one(self):
        self.refuse(2, ["--log and --json", "log"], *self.train("--log", "log", "--json", "./log"))
        self.refuse(2, ["--log", "run/log.jsonl"], *self.train("--log", "run/log.jsonl", "--out", "run"))
        self.refuse(2, ["--out and --json", "a.png"], *self.augment("--out", "a.png", "--json", "a.png"))
        for out in ("-", "a.jpg", "a"):
            self.refuse(2, [f"--out {out} ", "FILE.png"], *self.augment("--out", out))
        write_pictures(self.folder / "pictures", 2)
        for pictures in ("pictures", "pictures/dark/00.png", "folder:pictures"):
            self.refuse(2, ["--in and --out are one file", "pictures/dark/00.png"], "augment", "--in", pictures,
                        "--out", "pictures/dark/00.png")

    def test_values_that_say_nothing(self):
        for option in ("--out", "--init", "--log", "--json", "--data"):
            self.refuse(2, f"{option} needs a value", *self.train(option, ""))
        self.refuse(2, ["--fuse all,none", "allowed"], *self.train("--fuse", "all,none"))
        self.refuse(3, "a\\x1b[1m", *self.train("--init", "a\x1b[1m"))

    def test_last_batch(self):
        runs = {policy: self.summary(*self.classify("--last-batch", policy, "--augment", "gpu"))
                for policy in ("partial", "pad", "drop")}
        self.assertEqual({policy: run["steps"] for policy, run in runs.items()},
                         {"partial": 6, "pad": 6, "drop": 4})
        # Copies count nothing: not in losses, not in gradients.
        self.assertEqual(runs["pad"]["weights_sha256"], runs["partial"]["weights_sha256"])
        self.assertEqual(runs["pad"]["epochs"], runs["partial"]["epochs"])
        self.assertNotEqual(runs["drop"]["weights_sha256"], runs["partial"]["weights_sha256"])
        for run in runs.values():
            samples = 20 if run["steps"] == 6 else 16
            self.assertAlmostEqual(run["images_per_s"] / run["steps_per_s"], samples / (run["steps"] / 2))
        self.refuse(2, ["20", "32"], *self.classify("--last-batch", "drop", "--batch", 32))
        whole = self.summary(*self.classify("--last-batch", "partial", "--batch", 32, "--epochs", 1))
        self.assertEqual(whole["steps"], 1)
        # Steps end in the middle of an epoch.
        cut = self.summary("train", "classify", "--data", f"fashion-mnist:{self.data}", "--batch", 8,
                           "--steps", 4, "--device", "host", "--augment", "gpu")
        self.assertEqual([line["steps"] for line in cut["epochs"]], [3, 4])
        self.assertEqual(cut["epochs"][0], runs["partial"]["epochs"][0])

    def test_other_pictures(self):
        write_cifar(self.folder / "cifar")
        summary = self.summary(*self.classify("--data", "cifar10:cifar"))
        self.assertEqual((summary["steps"], summary["eval"]), (16, 12))  # 60 records, twice
        random = self.summary("train", "classify", "--data", "synthetic", "--image", 64, "--steps", 2,
                              "--batch", 2, "--augment", "cpu", "--device", "host")
        self.assertEqual((random["accuracy"], random["config"]["crop"], random["config"]["degrees"]),
                         (None, 32, 45))
        batch = self.folder / "cifar/data_batch_3.bin"
        good = batch.read_bytes()
        for bad in (good[:-1], good + b"x", b"\x0a" + good[1:]):
            batch.write_bytes(bad)
            self.refuse(3, "data_batch_3.bin", *self.classify("--data", "cifar10:cifar"))
        batch.unlink()
        self.refuse(3, "data_batch_3.bin", *self.classify("--data", "cifar10:cifar"))

    def test_a_folder_of_pictures(self):
        write_pictures(self.folder / "pictures")
        summary = self.summary(*self.classify("--data", "folder:pictures", "--augment", "gpu"))
        self.assertEqual((summary["class_names"], summary["eval"]), (["bright", "dark"], 4))
        (self.folder / "pictures/dark/03.png").write_bytes(png(40, 60)[:-30])
        self.check_fails(3, ["dark/03.png"], *self.classify("--data", "folder:pictures"))
        # Passed over, named and counted; the run goes on.
        for schedule in ("serial", "overlap"):
            result = self.succeed(*self.classify("--data", "folder:pictures", "--broken", "skip", "--out", "o",
                                                 "--schedule", schedule, "--workers", 3))
            self.assertEqual(result.stderr.count("dark/03.png"), 1)
            self.assertIn("skipped     1 file\n", result.stdout)
            skipped = json.loads((self.folder / "o/log.jsonl").read_text().splitlines()[-1])["summary"]
            self.assertEqual([file["file"].endswith("dark/03.png") for file in skipped["broken_files"]], [True])
            self.assertEqual(skipped["steps"], 4)  # 16 of 20 records are for training
        # Of those held out only what was scored is counted: two of each class, and one of them broken.
        (self.folder / "pictures/dark/04.png").write_bytes(b"")
        skipping = ("--data", "folder:pictures", "--broken", "skip")
        result = self.succeed(*self.classify(*skipping, "--out", "o", "--json", "trained.json"))
        self.assertIn("held out    3 pictures\n", result.stdout)
        self.assertIn("scoring up to 4 held-out pictures\n", result.stderr)
        self.assertEqual(json.loads((self.folder / "trained.json").read_text())["summary"]["eval"], 3)
        result = self.succeed("eval", "classify", "--weights", "o", "--device", "host", *skipping, "--json", "e.json")
        self.assertIn("held out    3 pictures\n", result.stdout)
        scored = json.loads((self.folder / "e.json").read_text())
        self.assertEqual((scored["eval"], sum(map(sum, scored["confusion"])), len(scored["broken_files"])), (3, 3, 1))
        found = self.found("classify", "--image", 32, "--max", 2, "--no-overlap", *skipping, "--with-accuracy", 1)
        self.assertEqual(found["accuracy"]["eval"], 3)
        (self.folder / "pictures/dark/notes.txt").write_text("no picture")
        self.check_fails(3, ["notes.txt"], *self.classify("--data", "folder:pictures"))
        self.refuse(3, "nowhere", *self.classify("--data", "folder:nowhere"))

    def check_fails(self, code, words, *arguments):
        result = self.run_program(*arguments)
        self.assertEqual(result.returncode, code, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)
        self.assertEqual(result.stdout, "")

    def test_classify_refuses(self):
        for data, words in (("cifar10", "cifar10:DIR"), ("folder", "folder:DIR"), ("folder:", "after the colon"),
                            ("synthetic:x", "no folder"), ("nothing", "folder:DIR"),
                            ("fashion-scenes", "classify needs a label a picture")):
            self.refuse(2, ["--data", data, words], *self.classify("--data", data))
        for data in ("fashion-mnist", "cifar10:x"):
            self.refuse(2, [data, "segment needs a label a pixel"], *self.train("--data", data))
        self.refuse(2, ["--classes is 5", "10 classes"], *self.classify("--classes", 5))
        self.refuse(2, ["--eval is 21", "0 to 20"], *self.classify("--eval", 21))
        self.refuse(2, ["'tpu'", "none, cpu, gpu"], *self.classify("--augment", "tpu"))
        for option, value in (("--crop", 20), ("--degrees", 0), ("--flip", 0.5), ("--sigma", "1,2"),
                              ("--blur-taps", 0), ("--padding", 1), ("--fill", 0), ("--rotation", "nearest"),
                              ("--border", "reflect")):
            self.refuse(2, [option, "--augment none"], *self.classify(option, value))
        for option, value, words in (
                ("--crop", 29, ["--crop is 29", "1 to 28"]), ("--crop", 0, ["'0'"]), ("--degrees", 361, ["360"]),
                ("--flip", 1.5, ["0 to 1"]), ("--blur-taps", 4, ["4", "odd"]), ("--blur-taps", 17, ["15"]),
                ("--sigma", 1, ["--sigma has 1 value"]), ("--sigma", "2,1", ["2", "1"]), ("--sigma", "0,1", ["'0'"]),
                ("--sigma", "1,nan", ["'nan'"]), ("--mean", "1,2", ["--mean has 2 values", "1, or 3"]),
                ("--std", "0", ["--std is 0", "1e-06"]), ("--std", "1e-39", ["--std is 1e-39", "1e-06"]),
                ("--fill", 256, ["0 to 255"]), ("--padding", -1, ["'-1'"]),
                ("--border", "mirror", ["reflect, constant, symmetric, replicate"])):
            self.refuse(2, words, *self.classify("--augment", "gpu", f"{option}={value}"))

    # --- a network of one's own ------------------------------------------------------------------

    def test_train_a_network_of_ones_own(self):
        (self.folder / "pixels.json").write_text(network(OF_PIXELS, frozen=FROZEN))
        (self.folder / "pictures.json").write_text(network(OF_PICTURES, frozen=FROZEN))
        (self.folder / "all.json").write_text(network(FROZEN + OF_PICTURES))
        mine = ("train", "--batch", 4, "--steps", 4, "--device", "host", "--seed", 3, "--model")
        scenes, records = f"fashion-scenes:{self.data}", f"fashion-mnist:{self.data}"
        for file, data, key, more in (("pixels.json", scenes, "miou", ("--eval", 4)),
                                      ("pictures.json", records, "accuracy", ("--augment", "cpu")),
                                      ("all.json", records, "accuracy", ("--augment", "gpu"))):
            runs = [self.summary(*mine, file, "--data", data, *more, "--schedule", schedule, "--out", "run")
                    for schedule in ("serial", "overlap")]
            self.assertEqual(runs[0]["weights_sha256"], runs[1]["weights_sha256"])
            self.assertEqual(runs[0]["workload"], "mine")
            self.assertTrue(0 <= runs[0][key] <= 1)
        self.assertEqual(sorted(path.name for path in (self.folder / "run").iterdir()),
                         ["frozen.safetensors", "log.jsonl", "model.json", "trained.safetensors"])
        # The file it wrote is the same network, and its weights fit.
        self.summary(*mine, "run/model.json", "--data", records, "--init", "run/trained.safetensors")
        self.summary(*mine, "pixels.json", "--data", scenes, "--eval", 0, "--init", "run/frozen.safetensors")
        self.refuse(3, "run/trained.safetensors", *mine, "pixels.json", "--data", scenes, "--init",
                    "run/trained.safetensors")

        self.refuse(2, ["pixels.json needs a label a pixel"], *mine, "pixels.json", "--data", records)
        self.refuse(2, ["pictures.json needs a label a picture"], *mine, "pictures.json", "--data", scenes)
        self.refuse(2, ["--augment cpu", "pixels.json"], *mine, "pixels.json", "--data", scenes, "--augment",
                    "cpu")
        self.refuse(2, ["--model and 'segment'"], *mine, "pixels.json", "segment")
        (self.folder / "three.json").write_text(network([*OF_PIXELS[:2], conv(8, 3, 3, 1, 1)], frozen=FROZEN))
        self.refuse(2, ["three.json is 3", "11 classes"], *mine, "three.json", "--data", scenes)
        (self.folder / "half.json").write_text(network([conv(8, 11, 3, 1, 1)], frozen=FROZEN))
        self.refuse(3, ["half.json", "16 x 16", "32 x 32"], *mine, "half.json", "--data", scenes)
        for text, words in (("{", []), (network([{"layer": "relu6"}]), ["trained[0]", "relu6"]),
                            (network(OF_PICTURES), ["trained[1].in_features"])):
            (self.folder / "bad.json").write_text(text)
            self.refuse(3, ["bad.json", *words], *mine, "bad.json")
        self.refuse(3, "nowhere.json", *mine, "nowhere.json")

    def test_the_network_of_the_docs(self):
        example = DOCS / "examples/small.json"
        self.assertIn(example.read_text(), (DOCS / "model.md").read_text())
        summary = self.summary("train", "--model", example, "--data", f"fashion-mnist:{self.data}", "--steps", 3,
                               "--lr", 0.02, "--device", "host")
        self.assertEqual((summary["workload"], summary["image"], summary["steps"]), ("small", 32, 3))

    # --- rows of numbers -------------------------------------------------------------------------

    KERAS, TRIAL = DOCS / "examples/keras.json", DOCS / "examples/trial.csv"

    def rows(self, *arguments):
        return ("train", "--model", self.KERAS, "--data", f"csv:{self.TRIAL}", "--device", "host", *arguments)

    def test_the_keras_example(self):
        """It learns nearly all that can be learnt: 95 %."""
        result = self.succeed(*self.rows("--epochs", 20, "--batch", 10, "--out", "run", "--json", "s.json"))
        for words in ("keras       1 feature, 2 classes, batch 10, 3380 steps", " rows/s", "side_effects 1"):
            self.assertIn(words, result.stdout)
        self.assertRegex(result.stdout, r"held out    \d+ rows")
        summary = json.loads((self.folder / "s.json").read_text())["summary"]
        self.assertEqual((summary["image"], summary["features"], summary["classes"]), (None, 1, 2))
        self.assertEqual(len(summary["epochs"]), 20)
        self.assertGreater(summary["accuracy"], 0.9)
        self.assertEqual(sum(map(sum, summary["confusion"])), summary["eval"])
        self.assertEqual(json.loads((self.folder / "run/model.json").read_text()), json.loads(self.KERAS.read_text()))
        again = self.summary(*self.rows("--epochs", 20, "--batch", 10, "--schedule", "serial"))
        self.assertEqual(again["weights_sha256"], summary["weights_sha256"])
        other = self.summary(*self.rows("--epochs", 20, "--batch", 10, "--no-shuffle"))
        self.assertNotEqual(other["weights_sha256"], summary["weights_sha256"])
        # The weights that were written start another run.
        started = self.summary(*self.rows("--steps", 1, "--lr", 0, "--init", "run/trained.safetensors"))
        self.assertEqual(started["weights_sha256"], summary["weights_sha256"])

    def test_the_trial_is_what_its_script_draws(self):
        made = subprocess.run([sys.executable, DOCS / "examples/make_trial.py"], text=True, capture_output=True, check=True)
        self.assertEqual(made.stdout, self.TRIAL.read_text())

    def test_validation_data_of_their_own(self):
        (self.folder / "trial").mkdir()
        lines = self.TRIAL.read_text().splitlines(keepends=True)
        (self.folder / "trial/train.csv").write_text("".join(lines[:101]))
        (self.folder / "trial/val.csv").write_text("".join([lines[0], *lines[101:131]]))
        summary = self.summary("train", "--model", self.KERAS, "--data", "csv:trial", "--epochs", 2, "--batch", 25,
                               "--device", "host")
        self.assertEqual((summary["steps"], summary["eval"]), (8, 30))

    def test_rows_refuse(self):
        mine = ("train", "--model", self.KERAS, "--device", "host")
        self.refuse(2, ["--data is missing", "rows of 1 number", "csv:FILE"], *mine)
        self.refuse(2, ["has pictures", "needs rows of 1 number"], *mine, "--data", f"fashion-mnist:{self.data}")
        self.refuse(2, ["has rows of numbers", "needs pictures"], "train", "--model", DOCS / "examples/small.json",
                    "--data", f"csv:{self.TRIAL}")
        self.refuse(2, ["which file?", "csv:FILE"], *mine, "--data", "csv")
        self.refuse(2, ["--augment cpu", "no pictures"], *self.rows("--augment", "cpu"))
        self.refuse(2, ["--crop"], *self.rows("--crop", 3))
        self.refuse(2, ["--mean", "no pictures"], *self.rows("--mean", 0.5))
        self.refuse(2, ["--eval is 1000", "419 rows"], *self.rows("--eval", 1000))
        self.refuse(3, ["nowhere.csv"], *mine, "--data", "csv:nowhere.csv")
        for text, words in (("age,y\n0.5,0\n0.6\n", ["line 3", "1 columns"]),
                            ("age,y\n0.5,0\nold,1\n", ["line 3", "age is 'old'"]),
                            ("age,y\n0.5,0\n0.5,-1\n", ["line 3", "y is '-1'"])):
            (self.folder / "bad.csv").write_text(text)
            self.refuse(3, ["bad.csv: ", *words], *mine, "--data", "csv:bad.csv")
        (self.folder / "two.csv").write_text("a,b,y\n1,2,0\n1,2,1\n")
        self.refuse(2, ["2 numbers a row", "reads 1"], *mine, "--data", "csv:two.csv", "--eval", 0)
        (self.folder / "three.csv").write_text("a,y\n1,0\n1,2\n")
        self.refuse(2, ["is 2", "3 classes"], *mine, "--data", "csv:three.csv", "--eval", 0)
        (self.folder / "wide.json").write_text(json.dumps(
            {"schema": 1, "name": "wide", "features": 1, "frozen": [], "trained": [
                {"layer": "transposed_conv", "in_channels": 1, "out_channels": 2, "kernel": 2, "stride": 2}]}))
        self.refuse(3, ["wide.json", "2 x 2", "1 x 1"], "train", "--model", "wide.json")

    def test_find_batch_on_rows(self):
        self.check_found(self.found("--model", self.KERAS, "--max", 4), [1, 2, 4])
        self.check_found(self.found("--model", self.KERAS, "--max", 4, "--input", "loader"), [1, 2, 4])

    # --- augment ---------------------------------------------------------------------------------

    def augment(self, *arguments):
        return ("augment", "--in", f"fashion-mnist:{self.data}", "--device", "host", *arguments)

    def test_augment(self):
        result = self.succeed(*self.augment("--out", "a.png", "--seed", 3, "--draws", 2, "--count", 3))
        draws = [line.strip() for line in result.stdout.splitlines() if line.startswith("  ")]
        self.assertEqual(len(set(draws)), 6)
        for draw in draws:
            self.assertRegex(draw, r"^crop [0-4],[0-4] flip [01] angle -?[\d.e-]+ sigma [\d.]+$")
        sheet = (self.folder / "a.png").read_bytes()
        self.assertEqual(sheet[:8], b"\x89PNG\r\n\x1a\n")
        # As often as one likes, and as training draws them: by seed, epoch and record alone.
        self.succeed(*self.augment("--out", "b.png", "--seed", 3, "--draws", 2, "--count", 3))
        self.assertEqual((self.folder / "b.png").read_bytes(), sheet)
        self.succeed(*self.augment("--out", "b.png", "--seed", 4, "--draws", 2, "--count", 3))
        self.assertNotEqual((self.folder / "b.png").read_bytes(), sheet)
        # A printed draw, replayed, makes the same picture, with the same words under it.
        first = json.loads(self.succeed(*self.augment("--out", "a.png", "--seed", 3, "--draws", 1, "--count", 1,
                                                      "--json", "-")).stdout)["pictures"]
        self.assertEqual(first, [{"name": first[0]["name"], "record": 0, "draws": [draws[0]]}])
        self.succeed(*self.augment("--out", "b.png", "--seed", 9, "--count", 1, "--force", draws[0]))
        self.assertEqual((self.folder / "b.png").read_bytes(), (self.folder / "a.png").read_bytes())

    def test_augment_of_files(self):
        write_pictures(self.folder / "pictures", 3)
        for pictures, names in (("pictures", ["00.png", "01.png", "02.png", "00.png"]),
                                ("pictures/dark/02.png", ["02.png"]), ("folder:pictures", ["bright", "bright"]),
                                ("synthetic", ["0", "9"])):
            result = json.loads(self.succeed("augment", "--in", pictures, "--out", "a.png", "--json", "-",
                                             "--image", 40, "--device", "host").stdout)
            found = [picture["name"] for picture in result["pictures"]]
            if pictures != "synthetic":
                self.assertEqual(found[:len(names)], names)

    def test_augment_refuses(self):
        self.refuse(2, "--in is required", "augment", "--out", "a.png")
        self.refuse(3, "nowhere", "augment", "--in", "nowhere", "--out", "a.png")
        self.refuse(3, "nowhere/a.png", *self.augment("--out", "nowhere/a.png"))
        (self.folder / "empty").mkdir()
        self.refuse(3, ["empty", "no JPEG or PNG"], "augment", "--in", "empty", "--out", "a.png")
        (self.folder / "bad.png").write_bytes(png(40, 60)[:-30])
        self.refuse(3, "bad.png", "augment", "--in", "bad.png", "--out", "a.png")
        for force in ("", "crop", "crop 1,2 flip 0 angle 3", "crop 1;2 flip 0 angle 3 sigma 1",
                      "crop 1,2 flip 0 angle 3 sigma 1 more", "crop 1,2 flip 0 angle nan sigma 1"):
            self.refuse(2, "--force", *self.augment("--out", "a.png", f"--force={force}"))
        self.refuse(2, ["crop_y is 5", "0 to 4"],
                    *self.augment("--out", "a.png", "--force", "crop 5,2 flip 0 angle 3 sigma 1"))
        self.refuse(2, ["--crop is 29"], *self.augment("--out", "a.png", "--crop", 29))

    # --- on a GPU --------------------------------------------------------------------------------

    def test_train_and_predict_on_a_gpu(self):
        self.need_gpu()
        for precision in ("fp32", "tf32", "bf16"):
            hashes = set()
            for schedule in ("serial", "overlap"):
                result = self.succeed(*self.train("--device", "cuda:0", "--precision", precision, "--out",
                                                  "out", "--schedule", schedule, "--json", "-"))
                summary = json.loads(result.stdout)["summary"]
                self.assertEqual((summary["device"], summary["gpu"], summary["precision"]),
                                 ("cuda:0", self.gpus()[0]["name"], precision))
                hashes.add((summary["weights_sha256"], summary["plan_hash"]))
            self.assertEqual(len(hashes), 1)
            self.succeed("predict", "segment", "--weights", "out", "--out", "a.png", "--count", 3, "--data",
                         f"fashion-scenes:{self.data}", "--device", "cuda:0", "--precision", precision)

    def test_classify_on_a_gpu(self):
        self.need_gpu()
        for precision in ("fp32", "tf32", "bf16"):
            hashes = {self.summary(*self.classify("--device", "cuda:0", "--precision", precision, "--augment",
                                                  augment, "--schedule", schedule, "--out", "run")
                                   )["weights_sha256"]
                      for augment in ("cpu", "gpu") for schedule in ("serial", "overlap")}
            self.assertEqual(len(hashes), 1, precision)
            scored = json.loads(self.succeed(
                "eval", "classify", "--weights", "run", "--device", "cuda:0", "--precision", precision, "--data",
                f"fashion-mnist:{self.data}", "--json", "-").stdout)
            self.assertEqual(scored["eval"], 20)

    def test_augment_on_a_gpu(self):
        self.need_gpu()
        for more in ((), ("--rotation", "bilinear", "--border", "symmetric", "--padding", 3)):
            for device in ("host", "cuda:0"):
                self.succeed(*self.augment("--out", f"{device}.png", *more), "--device", device)
            self.assertEqual((self.folder / "host.png").read_bytes(), (self.folder / "cuda:0.png").read_bytes())

    def test_bench_on_a_gpu(self):
        self.need_gpu()
        for source in ("device", "loader"):
            result = self.succeed(*self.bench(
                "--device", "cuda:0", "--precision", "fp32,tf32,bf16", "--input", source, "--steps", 30,
                "--observe", 0.5, "--json", "b.json"))
            self.assertIn("busy %", result.stdout)
            rows = json.loads((self.folder / "b.json").read_text())["rows"]
            self.assertEqual(len(rows), 6)
            for row in rows:
                self.assertLessEqual(ROW_KEYS, row.keys())
                self.assertIs(row["verified"], True)
                self.assertEqual(row["gpu"], self.gpus()[0]["name"])
                self.assertTrue(row["driver"])
                self.assertTrue(0 < row["gpu_busy_pct"] <= 100, row["gpu_busy_pct"])
                self.assertTrue(row["nvml_util_pct"] is not None or row["nvml_util_reason"])
            self.assertEqual(len({row["plan_hash"] for row in rows}), 3)  # one a precision
        row = json.loads(self.succeed(*self.bench("--device", "cuda:0", "--observe", 0, "--json", "-",
                                                  "--schedule", "serial")).stdout)["rows"][0]
        self.assertIsNone(row["gpu_busy_pct"])
        self.assertIn("--observe 0", row["gpu_busy_reason"])

    def test_warning_on_a_gpu(self):
        self.need_gpu()
        hashes = []
        for connections in ("1", "8"):
            result = self.run_program(*self.train("--device", "cuda:0", "--json", "-"),
                                      environment={"CUDA_DEVICE_MAX_CONNECTIONS": connections})
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual(result.stderr.count("CUDA_DEVICE_MAX_CONNECTIONS"), int(connections == "1"))
            hashes.append(json.loads(result.stdout)["summary"]["weights_sha256"])
        self.assertEqual(hashes[0], hashes[1])

    def test_tune_on_a_gpu(self):
        self.need_gpu()
        result = self.succeed("tune", "segment", "--image", 32, "--batch", "2,3", "--precision",
                              "fp32,tf32,bf16", "--device", "cuda:0", "--out", "plan.json")
        self.assertIn("chosen us", result.stdout)
        plan = json.loads((self.folder / "plan.json").read_text())
        self.assertIn(f"algorithms {plan_hash(plan)}", result.stdout)
        self.assertTrue(any(key.startswith("matmul bf16") for key in plan["algorithms"]))
        self.assertTrue(any(key.startswith("conv3x3 backward_weights") for key in plan["algorithms"]))
        for _ in range(2):
            rows = json.loads(self.succeed(*self.bench(
                "--device", "cuda:0", "--plan", "plan.json", "--precision", "fp32,tf32,bf16", "--observe", 0,
                "--json", "-")).stdout)["rows"]
            self.assertEqual([row["verified"] for row in rows], [True] * 6)
        # A plan file says where it is valid.
        plan["environment"] = "another GPU"
        (self.folder / "other.json").write_text(json.dumps(plan))
        for command in (self.train(), self.bench()):
            self.refuse(3, ["other.json", "another GPU", self.gpus()[0]["name"]], *command, "--device",
                        "cuda:0", "--plan", "other.json")
        self.refuse(3, "none.json", *self.train("--device", "cuda:0", "--plan", "none.json"))

    def test_overlap_on_a_gpu(self):
        self.need_gpu()
        result = json.loads(self.succeed("bench", "overlap", "--device", "cuda:0", "--balance", "1:2,1:1",
                                         "--grid-fill", "12,800", "--steps", 10, "--json", "-").stdout)
        self.check_overlap(result, [("1:2", 12), ("1:1", 12), ("1:2", 800), ("1:1", 800)])

    # --- runs that do not finish -----------------------------------------------------------------

    def test_non_finite_loss(self):
        self.succeed(*self.train("--out", "out"))
        weights = (self.folder / "out/decoder.safetensors").read_bytes()
        log = (self.folder / "out/log.jsonl").read_bytes()
        for schedule in ("serial", "overlap"):
            result = self.run_program(*self.train("--schedule", schedule, "--lr", 1e30, "--steps", 50,
                                                  "--out", "out"))
            self.assertEqual(result.returncode, 6, result.stderr)
            self.assertRegex(result.stderr, r"tandem: the loss of step \d+ is ")
            self.assertEqual(result.stdout, "")
            step = int(result.stderr.split("the loss of step ")[1].split()[0])
            self.assertIn("the log is out/log.jsonl.new", result.stderr)
            lines = (self.folder / "out/log.jsonl.new").read_text().splitlines()
            self.assertEqual([json.loads(line)["step"] for line in lines], list(range(step)))
            self.assertEqual((self.folder / "out/log.jsonl").read_bytes(), log)
            self.assertEqual((self.folder / "out/decoder.safetensors").read_bytes(), weights)

    def start(self, *arguments):
        """The program, running; ended with the test."""
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], cwd=self.folder, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def read_until(self, process, text):
        """Reads its standard error up to a line with the text."""
        while text not in (line := process.stderr.readline()):
            self.assertNotEqual(line, "")

    def start_endless(self):
        """A training run that writes its log into a pipe, so that it stops when nobody reads."""
        os.mkfifo(self.folder / "pipe")
        process = self.start(*self.train("--steps", 10**9, "--log", "pipe", "--out", "out"))
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        pipe = open(self.folder / "pipe", encoding="utf-8")
        self.addCleanup(pipe.close)
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)  # one page: room for about a hundred lines
        self.assertIn('"step":0', pipe.readline())  # the run has begun
        return process, pipe

    def wait_until(self, condition):
        """Waits for what must come; fails instead of hanging if it does not."""
        deadline = time.monotonic() + 120
        while not condition():
            self.assertLess(time.monotonic(), deadline, "it did not happen")
            time.sleep(0.01)

    def test_interrupt(self):
        process, pipe = self.start_endless()
        process.send_signal(signal.SIGINT)
        steps = 1 + len(pipe.readlines())  # until the program ends
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn(f"tandem: interrupted after {steps} of 1000000000 steps", err)
        self.assertEqual(out, "")
        self.assertEqual([path.name for path in (self.folder / "out").iterdir()], ["log.jsonl.new"])
        self.assertEqual(len((self.folder / "out/log.jsonl.new").read_text().splitlines()), steps)

    def test_interrupt_of_a_profile_writes_what_there_is(self):
        process = self.start(*self.profile(
            "segment", "--image", 32, "--batch", 1, "--repeat", 0, "--steps", 10**9, "--wait", 0, "--warmup", 0,
            "--active", 50, "--trace", "log"))
        self.wait_until((self.folder / "log/cycle2.trace.json").exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertEqual(out, "")
        traces = list((self.folder / "log").iterdir())
        self.assertIn(f"tandem: interrupted; traces written: {len(traces)}", err)
        for trace in traces:
            self.assertEqual(trace.suffix, ".json")
            json.loads(trace.read_text())

    def test_interrupt_of_long_stages(self):
        """A stage alone, then the steps: Ctrl-C is heard long before the measurement would end."""
        # What spins for so long has used the processor for as long: 2.4 s are the stages alone.
        for longest, steps, used in ((10_000_000, 30, 0), (200_000, 5, 2.8)):
            process = self.start(*self.overlap(
                "--device", "host", "--balance", "1:1", "--longest", longest, "--steps", steps, "--warmup", 1,
                "--json", "o.json"))

            def listens():
                status = Path(f"/proc/{process.pid}/status").read_text()
                caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
                return int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1
            self.wait_until(listens)

            def has_used_the_processor():
                ticks = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
                return sum(map(int, ticks)) >= used * os.sysconf("SC_CLK_TCK")
            self.wait_until(has_used_the_processor)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=20)
            self.assertEqual((process.returncode, out), (130, ""), err)
            self.assertEqual(err.splitlines()[-1], "tandem: interrupted; no results were written")
            self.assertFalse((self.folder / "o.json").exists())

    def test_interrupt_of_a_search_speaks_of_no_weights(self):
        process = self.start(*self.find_batch(
            "classify", "--image", 32, "--max", 1, "--no-overlap", "--data", f"fashion-mnist:{self.data}",
            "--with-accuracy", 1, "--epochs", 1_000_000, "--json", "f.json"))
        self.read_until(process, "training of batch 1")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, ""), err)
        self.assertEqual(err.splitlines()[-1], "tandem: interrupted; no results were written")
        self.assertFalse((self.folder / "f.json").exists())

    def test_interrupt_while_scoring(self):
        process = self.start(*self.train("--out", "out", "--eval", 10**6))
        self.read_until(process, "scoring")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (130, ""), err)
        self.assertIn("after 3 of 3 steps; the weights were written to out, without scores", err)
        self.assertEqual(sorted(path.name for path in (self.folder / "out").iterdir()),
                         ["decoder.safetensors", "encoder.safetensors", "log.jsonl"])
        summary = json.loads((self.folder / "out/log.jsonl").read_text().splitlines()[-1])["summary"]
        self.assertEqual((summary["miou"], summary["config"]["image"]), (None, 32))

    def test_second_interrupt(self):
        process, pipe = self.start_endless()
        # Nobody reads now: wait until the pipe is full to a line or less. The run still has several
        # steps to report, so it cannot end by itself.
        def is_full():
            waiting = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))[0]
            return fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ) - waiting <= 60

        self.wait_until(is_full)
        process.send_signal(signal.SIGINT)
        status = Path(f"/proc/{process.pid}/status")
        self.wait_until(lambda: not int(status.read_text().split("SigCgt:")[1].split()[0], 16)
                        & 1 << (signal.SIGINT - 1))  # the first one has been handled
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
        self.assertEqual(process.returncode, -signal.SIGINT)


if __name__ == "__main__":
    PROGRAM = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(verbosity=2)
