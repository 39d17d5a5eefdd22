// HostArena: pages that do not overlap, seen through every mapping; checksums that know their page.
#include "engine/worker/shm/host_arena.h"

#include <unistd.h>

#include <algorithm>

#include "gtest/gtest.h"

namespace quire {
namespace {

constexpr HostArena::Shape kShape = {.num_pages = 5, .page_bytes = 5000};

HostArena Arena() {
  HostArena arena = *HostArena::Create();
  EXPECT_TRUE(arena.Allocate(kShape).ok());
  return arena;
}

void Fill(std::span<std::byte> bytes, int value) {
  std::fill(bytes.begin(), bytes.end(), static_cast<std::byte>(value));
}

bool Holds(std::span<const std::byte> bytes, int value) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [value](std::byte byte) { return byte == static_cast<std::byte>(value); });
}

TEST(HostArenaTest, PagesAreZeroAndDoNotOverlap) {
  HostArena arena = Arena();
  for (PageId page = 0; page < 5; ++page) {
    EXPECT_EQ(arena.page(page).size(), 5000u);
    EXPECT_TRUE(Holds(arena.page(page), 0));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena.page(page).data()) % 4096, 0u);
    Fill(arena.page(page), page + 1);
    arena.Sign(page);
  }
  for (PageId page = 0; page < 5; ++page) {
    EXPECT_TRUE(Holds(arena.page(page), page + 1));
    EXPECT_TRUE(arena.Intact(page));
  }
}

TEST(HostArenaTest, APrivateArenaDiffersOnlyByItsDescriptor) {
  HostArena arena = *HostArena::CreatePrivate(kShape);
  EXPECT_LT(arena.fd(), 0);
  for (PageId page = 0; page < 5; ++page) {
    EXPECT_TRUE(Holds(arena.page(page), 0));
    EXPECT_FALSE(arena.Intact(page));
    Fill(arena.page(page), page + 1);
    arena.Sign(page);
  }
  for (PageId page = 0; page < 5; ++page) EXPECT_TRUE(arena.Intact(page));
  EXPECT_FALSE(HostArena::CreatePrivate({1 << 30, int64_t{1} << 32}).ok()) << "4 EiB";
}

TEST(HostArenaTest, AnotherMappingSeesTheSameBytes) {
  HostArena arena = Arena();
  const auto other =
      HostArena::Attach(*SharedMemory::Map(Descriptor(dup(arena.fd()))), arena.shape());
  ASSERT_TRUE(other.ok()) << other.status();
  Fill(other->page(3), 7);
  EXPECT_TRUE(Holds(arena.page(3), 7));
  arena.Sign(3);
  EXPECT_TRUE(other->Intact(3));
}

TEST(HostArenaTest, AnotherShapeIsRefused) {
  HostArena arena = Arena();
  for (const HostArena::Shape shape : {HostArena::Shape{6, 5000}, HostArena::Shape{5, 9000}}) {
    EXPECT_FALSE(HostArena::Attach(*SharedMemory::Map(Descriptor(dup(arena.fd()))), shape).ok());
  }
}

TEST(HostArenaTest, EveryChangeOfAPageIsDetected) {
  HostArena arena = Arena();
  EXPECT_FALSE(arena.Intact(2)) << "never signed";
  Fill(arena.page(2), 9);
  EXPECT_FALSE(arena.Intact(2)) << "never signed";
  arena.Sign(2);
  ASSERT_TRUE(arena.Intact(2));
  for (const size_t at : {0, 1, 2500, 4998, 4999}) {
    for (int bit = 0; bit < 8; ++bit) {
      arena.page(2)[at] ^= std::byte{1} << bit;
      EXPECT_FALSE(arena.Intact(2));
      arena.page(2)[at] ^= std::byte{1} << bit;
    }
  }
  EXPECT_TRUE(arena.Intact(2));
}

// A page and its checksum at another page's place.
TEST(HostArenaTest, ChecksumsOfEqualPagesDiffer) {
  HostArena arena = Arena(), other = Arena();
  Fill(arena.page(1), 9);
  Fill(arena.page(2), 9);
  arena.Sign(1);
  EXPECT_FALSE(arena.Intact(2));
}

}  // namespace
}  // namespace quire
