// SPDX-License-Identifier: Apache-2.0
// UniqueHandle with traits that count: every handle is destroyed exactly once, and null never.
#include <gtest/gtest.h>

#include <map>
#include <tandem/engine/unique_handle.hpp>
#include <type_traits>
#include <utility>

namespace tandem {
namespace {

std::map<int, int> destroyed;  // handle -> how often

struct CountingTraits {
  using Handle = int;
  static Handle null() noexcept { return -1; }  // not 0: the owner must ask for it
  static void destroy(Handle handle) noexcept { ++destroyed[handle]; }
};
using Owner = UniqueHandle<CountingTraits>;
using Counts = std::map<int, int>;

class UniqueHandleTest : public testing::Test {
 protected:
  void SetUp() override { destroyed.clear(); }
};

TEST_F(UniqueHandleTest, DestroysWhatItAdopted) {
  {
    const Owner owner = Owner::adopt(7);
    EXPECT_TRUE(owner);
    EXPECT_EQ(owner.get(), 7);
    EXPECT_EQ(destroyed, Counts{});
  }
  EXPECT_EQ(destroyed, (Counts{{7, 1}}));
}

TEST_F(UniqueHandleTest, EmptyDestroysNothing) {
  {
    Owner empty;
    EXPECT_FALSE(empty);
    EXPECT_EQ(empty.get(), CountingTraits::null());
    empty.reset();
    Owner adopted_null = Owner::adopt(CountingTraits::null());
    EXPECT_FALSE(adopted_null);
  }
  EXPECT_EQ(destroyed, Counts{});
}

TEST_F(UniqueHandleTest, ZeroIsAHandleLikeAnyOther) {
  { const Owner owner = Owner::adopt(0); }
  EXPECT_EQ(destroyed, (Counts{{0, 1}}));
}

TEST_F(UniqueHandleTest, MovedFromIsEmpty) {
  {
    Owner source = Owner::adopt(1);
    const Owner target = std::move(source);
    EXPECT_FALSE(source);  // NOLINT(bugprone-use-after-move): that is what is tested
    EXPECT_EQ(target.get(), 1);
    EXPECT_EQ(destroyed, Counts{});
  }
  EXPECT_EQ(destroyed, (Counts{{1, 1}}));
}

TEST_F(UniqueHandleTest, AssigningOverALiveHandleDestroysItOnce) {
  {
    Owner target = Owner::adopt(1);
    Owner source = Owner::adopt(2);
    target = std::move(source);
    EXPECT_EQ(destroyed, (Counts{{1, 1}}));  // at once, not later
    EXPECT_EQ(target.get(), 2);
    EXPECT_FALSE(source);  // NOLINT(bugprone-use-after-move)
  }
  EXPECT_EQ(destroyed, (Counts{{1, 1}, {2, 1}}));
}

TEST_F(UniqueHandleTest, AssigningAnEmptyOneDestroys) {
  Owner target = Owner::adopt(1);
  target = Owner();
  EXPECT_FALSE(target);
  EXPECT_EQ(destroyed, (Counts{{1, 1}}));
}

TEST_F(UniqueHandleTest, SelfMoveIsHarmless) {
  {
    Owner owner = Owner::adopt(1);
    Owner& same = owner;  // through a reference, so that no compiler warns
    owner = std::move(same);
    EXPECT_TRUE(owner);
    EXPECT_EQ(owner.get(), 1);
    EXPECT_EQ(destroyed, Counts{});
  }
  EXPECT_EQ(destroyed, (Counts{{1, 1}}));
}

TEST_F(UniqueHandleTest, ResetDestroysOnce) {
  Owner owner = Owner::adopt(1);
  owner.reset();
  EXPECT_FALSE(owner);
  owner.reset();
  EXPECT_EQ(destroyed, (Counts{{1, 1}}));
}

TEST_F(UniqueHandleTest, ReleaseGivesUpOwnership) {
  {
    Owner owner = Owner::adopt(1);
    EXPECT_EQ(owner.release(), 1);
    EXPECT_FALSE(owner);
  }
  EXPECT_EQ(destroyed, Counts{});
}

TEST_F(UniqueHandleTest, SwapExchanges) {
  {
    Owner a = Owner::adopt(1), b;
    a.swap(b);
    EXPECT_FALSE(a);
    EXPECT_EQ(b.get(), 1);
  }
  EXPECT_EQ(destroyed, (Counts{{1, 1}}));
}

// The rest is tested where it belongs: tests/compile/cases shows that these do not compile.
static_assert(!std::is_copy_constructible_v<Owner> && !std::is_copy_assignable_v<Owner>);
static_assert(std::is_nothrow_move_constructible_v<Owner>);
static_assert(std::is_nothrow_move_assignable_v<Owner>);
static_assert(!std::is_constructible_v<Owner, int>, "only adopt() takes ownership");

}  // namespace
}  // namespace tandem
