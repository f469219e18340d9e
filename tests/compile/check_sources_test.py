# SPDX-License-Identifier: Apache-2.0
"""Plants one violation of each rule in a small tree and sees check_sources.py name it."""
import pathlib
import tempfile
import unittest

from check_sources import LICENSE, violations

HEADER = f"// {LICENSE}\n"


class CheckSources(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.write("engine/good.hpp", HEADER + "#include <vector>\n#include <tandem/kernels/a.hpp>\n")

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text, encoding="utf-8")

    def expect(self, *found):
        self.assertEqual(list(violations(self.root, {"kernels/check.hpp"})), list(found))

    def test_a_good_tree_has_no_violation(self):
        self.write("models/m.cpp", HEADER + "#include <fmt/core.h>\n#include <tandem/engine/a.hpp>\n")
        self.write("kernels/check.hpp", HEADER + "#include <cuda_runtime_api.h>\n")
        self.write("tests/t.cpp", HEADER + "#include <tandem/bench/png.hpp>\n")
        self.write("bench/run.sh", f"#!/bin/sh\n# {LICENSE}\n")
        self.expect()

    def test_an_include_against_the_direction(self):
        self.write("kernels/k.cpp", HEADER + "\n  #  include <tandem/engine/good.hpp>\n")
        self.write("engine/e.cpp", HEADER + "#include <tandem/models/m.hpp>\n")
        self.expect("kernels/k.cpp:3: kernels includes engine: tandem/engine/good.hpp",
                    "engine/e.cpp:2: engine includes models: tandem/models/m.hpp")

    def test_bench_and_tests_do_not_include_each_other(self):
        self.write("bench/b.cpp", HEADER + "#include <tandem/tests/support/a.hpp>\n")
        self.write("tests/host/t.cpp", HEADER + "#include <tandem/bench/train.hpp>\n")
        self.expect("bench/b.cpp:2: bench includes tests: tandem/tests/support/a.hpp",
                    "tests/host/t.cpp:2: tests includes bench: tandem/bench/train.hpp")

    def test_an_include_that_climbs(self):
        self.write("kernels/k.cpp", HEADER + '#include "../engine/good.hpp"\n')
        self.expect("kernels/k.cpp:2: include climbs with '..': ../engine/good.hpp")

    def test_third_party_types_in_a_public_header(self):
        for path in ("<fmt/core.h>", "<cblas.h>", "<cuda_runtime.h>", '"local.hpp"', "<stdint.h>"):
            self.write("models/m.hpp", HEADER + f"#include {path}\n")
            self.expect("models/m.hpp:2: public header includes neither ours nor the standard "
                        f"library: {path[1:-1]}")

    def test_a_missing_licence(self):
        self.write("tests/a.py", "import os\n")
        self.write("tests/b.sh", "#!/bin/sh\necho\n")
        self.write("tests/empty.cpp", "")
        self.expect(*(f"tests/{name}: no line '{LICENSE}'" for name in ("a.py:1", "b.sh:2",
                                                                        "empty.cpp:1")))

    def test_an_empty_tree(self):
        (self.root / "engine/good.hpp").unlink()
        self.expect(f"{self.root}: no source file found")


if __name__ == "__main__":
    unittest.main()
