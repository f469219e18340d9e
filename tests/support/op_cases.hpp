// SPDX-License-Identifier: Apache-2.0
// Cases for every operation of the registry, and memory to run and audit them in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tandem/engine/operation.hpp>
#include <tandem/kernels/batch_header.hpp>
#include <tandem/tests/support/oracles.hpp>
#include <utility>
#include <vector>

namespace tandem::test {

/// Sizes of one case. An operation uses those that it has.
struct CaseSizes {
  const char* name = "";
  std::int64_t n = 1, samples = 1;  ///< batch, and how many of it are not padding
  std::int64_t h = 1, w = 1;        ///< of the smaller image, in raster order
  std::int64_t side = 1;            ///< of the smaller image, in Z-order
  std::int64_t c = 1, k = 1;        ///< channels in and out; classes are k
};

/// Odd channels and batch, batch 1, a partial batch, one pixel, and channels beyond a vector's
/// width.
const std::vector<CaseSizes>& case_sizes();

struct OpCase {
  std::string name;
  CaseSizes sizes;
  DType type = DType::f32;  ///< T
  Operation operation;
  std::vector<Raster> values;  ///< one an operand; empty for headers and what is only written
  BatchHeader header;
  std::vector<AugmentDraw> draws;  ///< behind the header, one a sample; augment only

  bool is_header(std::size_t operand) const;
  bool is_result(std::size_t operand) const;

  std::vector<std::vector<Expected>> expected() const;
};

/// Storage types T that a kind is offered in.
std::vector<DType> storage_types(OpKind kind);

/// One case for these sizes. `layout` is that of the images where the kind leaves a choice; for a
/// permute it is the source's and `to` the target's.
OpCase make_case(OpKind kind, DType type, Layout layout, const CaseSizes& sizes,
                 Layout to = Layout::nhwc);

/// An augmentation that takes one kernel a part; that of make_case() takes one kernel.
OpCase make_plain_augment_case(DType type, Layout layout, const CaseSizes& sizes);

/// All sizes, types and layouts of a kind; empty for callable.
std::vector<OpCase> op_cases(OpKind kind);

/// The kinds that have cases: all but a callable, and the two of the segmenter's head, whose sizes
/// are others (tests/host and tests/gpu/conv3x3_loss_test.cpp judge those).
std::vector<int> kinds_with_cases();

/// The registry's name of a kind.
std::string kind_name(OpKind kind);

/// Names of tests that are parametrised by the index of a kind, or by a type.
std::string kind_test_name(const ::testing::TestParamInfo<int>& kind);
std::string type_test_name(const ::testing::TestParamInfo<DType>& type);

/// Other values for a read operand, of the same type and shape. Tables of an augmentation become
/// those of a slightly smaller crop.
void redraw(OpCase& op_case, std::size_t operand);

/// What a result that the operation adds to holds before it.
void set_result(OpCase& op_case, std::size_t operand, const StepResult& result);

/// Sets the header's derived numbers from a count, as the maker of a batch does.
void set_count(BatchHeader& header, std::int64_t count);

/// What runs an operation on its pointers; by default the registry's host body.
using Body = std::function<void(const Operation&, void* const*)>;
Body host_body(OpKind kind);

/// An arena with the operands of a case, and its workspace where it needs one. Between them lie
/// guard zones, which start right behind the last byte of each operand, and buffers that the
/// operation does not declare. Those are full of NaN in every floating-point type; what the
/// operation only writes, workspace included, is full of the byte `poison`.
class OpMemory {
 public:
  explicit OpMemory(const OpCase& op_case, unsigned char poison = 0xFF);

  void run(const Body& body);

  /// The operand as it is now; step, valid count, loss for a result.
  Raster values(std::size_t operand) const;
  std::vector<std::byte> bytes(std::size_t operand) const;

  /// All of it, guard zones included, for bodies that run on a copy elsewhere.
  std::pair<std::byte*, std::size_t> arena() { return {base_, before_.size()}; }

  /// Changed since the start without being declared written: "x", "behind x", "undeclared 2".
  std::vector<std::string> trespasses() const;

 private:
  struct Region {
    std::string name;
    std::size_t offset = 0, bytes = 0;
    bool written = false;
  };
  OpCase case_;
  std::vector<Region> regions_;
  std::vector<std::size_t> operand_region_;  ///< operand -> index into regions_
  std::vector<std::byte> memory_, before_;
  std::byte* base_ = nullptr;  ///< memory_, aligned like an arena
};

/// Runs the case and returns the values of all operands after it (empty for those only read).
std::vector<Raster> run_case(const OpCase& op_case);

}  // namespace tandem::test
