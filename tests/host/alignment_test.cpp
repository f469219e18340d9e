// SPDX-License-Identifier: Apache-2.0
// Memory that somebody else allocated is refused where no plan's buffers could lie in it.
#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <tandem/engine/alignment.hpp>
#include <tandem/engine/error.hpp>
#include <utility>

namespace tandem {
namespace {

const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }

TEST(Alignment, MultiplesOf256AreTaken) {
  for (const std::uintptr_t address :
       std::initializer_list<std::uintptr_t>{0, 256, 512, 0x7f0000000100})
    EXPECT_NO_THROW(check_alignment(at(address), "the arena")) << address;
}

TEST(Alignment, AnythingElseIsRefusedByAddressAndPurpose) {
  for (const std::uintptr_t address :
       std::initializer_list<std::uintptr_t>{1, 16, 128, 255, 257, 0x7f0000000180}) {
    try {
      check_alignment(at(address), "the arena");
      ADD_FAILURE() << address << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::usage);
      const std::string text = error.what();
      const std::string behind = std::to_string(address % 256) + " bytes behind a multiple of 256";
      for (const std::string& part : {std::string("the arena"), behind, std::string("required")})
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
  }
}

TEST(Alignment, SizesGoUpToTheNextMultiple) {
  for (const auto& [bytes, expected] : {std::pair{0u, 0u}, {1u, 256u}, {256u, 256u}, {257u, 512u}})
    EXPECT_EQ(aligned_size(bytes), expected) << bytes;
}

}  // namespace
}  // namespace tandem
