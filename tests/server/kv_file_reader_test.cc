// A KV file in a real folder, read by several threads into the pages of one rank or of several.
#include "server/session/archive/kv_file_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace quire {
namespace {

// A block is longer than what is read at once, and over several ranks it has more runs than that.
constexpr int32_t kLayers = 300;
constexpr int32_t kHeads = 2;
constexpr int64_t kHeadBytes = 256;
constexpr int64_t kBlockBytes = int64_t{2} * kLayers * kHeads * kHeadBytes;
constexpr int32_t kBlocks = 3;

SessionFileReader::Limits Here() {
  return {.shape = {.model = "demo",
                    .model_identity = 1,
                    .kv_dtype = "float32",
                    .num_layers = kLayers,
                    .num_kv_heads = kHeads,
                    .head_dim = 8,
                    .block_size = 16,
                    .block_bytes = kBlockBytes},
          .max_tokens = 100,
          .vocab_size = 1000};
}

std::byte ByteOf(int32_t block, int64_t row, int64_t head, int64_t i) {
  const int64_t place = ((block * 2 * kLayers + row) * kHeads + head) * kHeadBytes + i;
  return static_cast<std::byte>((place * 2654435761u) >> 24);
}

class KvFileReaderTest : public ::testing::TestWithParam<int32_t> {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    std::vector<std::byte> page(kBlockBytes);
    const auto page_of = [&page](int32_t block, int32_t) -> std::span<std::byte> {
      for (int64_t i = 0; i < kBlockBytes; ++i) {
        const int64_t head = i / kHeadBytes;
        page[static_cast<size_t>(i)] = ByteOf(block, head / kHeads, head % kHeads, i % kHeadBytes);
      }
      return page;
    };
    SessionFileWriter writer({.shape = Here().shape, .num_tokens = 48, .kv_tokens = 48},
                             std::vector<int32_t>(48, 7), {.ranks = 1, .page_of = page_of});
    std::string bytes;
    while (writer.Next(1 << 20, &bytes)) {
    }
    const auto file = disk_->Open("1.kv", Disk::Mode::kCreate);
    ASSERT_TRUE(file.ok() && AppendAll(**file, bytes).ok());
    for (int32_t rank = 0; rank < GetParam(); ++rank) {
      absl::StatusOr<HostArena> arena = HostArena::CreatePrivate(
          {.num_pages = kBlocks, .page_bytes = kBlockBytes / std::min(GetParam(), kHeads)});
      ASSERT_TRUE(arena.ok()) << arena.status();
      arenas_.push_back(std::make_shared<HostArena>(*std::move(arena)));
    }
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  absl::Status ReadBy(
      int threads, const std::function<void()>& after_open = [] {}) {
    auto reader = KvFileReader::Open(*disk_, "1.kv", Here());
    if (!reader.ok()) return reader.status();
    after_open();
    (*reader)->SetPages(arenas_, {2, 0, 1});
    std::atomic<bool> stop{false};
    (*reader)->Expect(threads, &stop);
    std::vector<std::thread> running;
    for (int i = 0; i < threads; ++i) running.emplace_back([&] { (*reader)->Read(); });
    for (std::thread& thread : running) thread.join();
    return (*reader)->Finish();
  }

  const std::string folder_ = ::testing::TempDir() + "/quire_kv_file_" + std::to_string(GetParam());
  const std::unique_ptr<Disk> disk_ = OpenDisk(folder_);
  HostArenas arenas_;
};

TEST_P(KvFileReaderTest, EachRankGetsItsHeads) {
  ASSERT_TRUE(ReadBy(2).ok());
  const int32_t held = std::max(1, kHeads / GetParam());
  for (int32_t rank = 0; rank < GetParam(); ++rank) {
    for (int32_t block = 0; block < kBlocks; ++block) {
      const PageId page = (block + 2) % kBlocks;
      const std::span<const std::byte> bytes = arenas_[static_cast<size_t>(rank)]->page(page);
      int64_t wrong = 0;
      for (int64_t i = 0; i < static_cast<int64_t>(bytes.size()); ++i) {
        const int64_t row = i / (held * kHeadBytes);
        const int64_t head = rank * kHeads / GetParam() + i / kHeadBytes % held;
        wrong += bytes[static_cast<size_t>(i)] != ByteOf(block, row, head, i % kHeadBytes);
      }
      EXPECT_EQ(wrong, 0) << "rank " << rank << " block " << block;
      EXPECT_TRUE(arenas_[static_cast<size_t>(rank)]->Intact(page));
    }
  }
}

TEST_P(KvFileReaderTest, AChangedByteIsRefused) {
  const std::string path = folder_ + "/1.kv";
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  for (int64_t at = size - 1; at > 0; at -= kBlockBytes / 7) {
    const auto flip = [&] {
      std::FILE* const file = std::fopen(path.c_str(), "r+b");
      std::fseek(file, at, SEEK_SET);
      const int byte = std::fgetc(file);
      std::fseek(file, at, SEEK_SET);
      std::fputc(byte ^ 4, file);
      std::fclose(file);
    };
    flip();
    EXPECT_TRUE(absl::IsInvalidArgument(ReadBy(2))) << at;
    flip();
  }
  EXPECT_TRUE(ReadBy(2).ok());
}

TEST_P(KvFileReaderTest, AFileThatGetsShorterIsRefused) {
  const std::string path = folder_ + "/1.kv";
  const auto cut = [&] { std::filesystem::resize_file(path, kBlockBytes * 5 / 2); };
  EXPECT_TRUE(absl::IsOutOfRange(ReadBy(1, cut)));
}

// Every byte of the pieces is asked for; a file that ends within them does not fill them.
TEST_P(KvFileReaderTest, PiecesAreFilledOrRefused) {
  const auto file = disk_->Open("2.kv", Disk::Mode::kCreate);
  ASSERT_TRUE(file.ok() && AppendAll(**file, "0123456789").ok());
  std::vector<std::byte> bytes(8);
  const std::vector<std::span<std::byte>> pieces = {std::span(bytes).first(3),
                                                    std::span(bytes).subspan(3)};
  ASSERT_TRUE((*file)->ReadPieces(2, pieces).ok());
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), 8), "23456789");
  EXPECT_TRUE(absl::IsOutOfRange((*file)->ReadPieces(3, pieces)));
  EXPECT_TRUE(absl::IsOutOfRange((*file)->ReadPieces(8, pieces)));
}

INSTANTIATE_TEST_SUITE_P(Ranks, KvFileReaderTest, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace quire
