// ArenaToucher: every page gets memory, in the order that Await promises, and no page its bytes
// changed.
#include "engine/worker/shm/arena_toucher.h"

#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "gtest/gtest.h"

namespace quire {
namespace {

// The system's pages of the first `count` arena pages that have memory.
int64_t Resident(const HostArena& arena, int32_t count) {
  const auto bytes = static_cast<size_t>(count * arena.stride());
  std::vector<unsigned char> resident(bytes / 4096);
  EXPECT_EQ(mincore(arena.page(0).data(), bytes, resident.data()), 0);
  return std::ranges::count_if(resident, [](unsigned char page) { return (page & 1) != 0; });
}

HostArena Arena(int32_t num_pages, int64_t page_bytes) {
  HostArena arena = *HostArena::Create();
  EXPECT_TRUE(arena.Allocate({.num_pages = num_pages, .page_bytes = page_bytes}).ok());
  return arena;
}

TEST(ArenaToucherTest, TouchesAllPagesBeforeAwaitReturns) {
  const HostArena arena = Arena(150, 1 << 20);
  EXPECT_EQ(Resident(arena, 150), 0);
  ArenaToucher toucher(arena);
  for (const int32_t count : {1, 33, 100, 150}) {
    toucher.Await(count);
    EXPECT_EQ(Resident(arena, count), count * 256) << count;
  }
}

// A page may be larger than a piece, and written while others are touched.
TEST(ArenaToucherTest, ChangesNoByte) {
  const HostArena arena = Arena(4, int64_t{40} << 20);
  std::ranges::fill(arena.page(3), std::byte{7});
  ArenaToucher toucher(arena);
  toucher.Await(4);
  EXPECT_TRUE(std::ranges::all_of(arena.page(3), [](std::byte b) { return b == std::byte{7}; }));
  EXPECT_EQ(arena.page(0)[0], std::byte{0});
}

TEST(ArenaToucherTest, MayBeDestroyedAtOnce) {
  const HostArena arena = Arena(64, 1 << 20);
  for (int i = 0; i < 20; ++i) const ArenaToucher toucher(arena);
}

}  // namespace
}  // namespace quire
