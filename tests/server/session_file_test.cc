// The bytes of an exported session: a reader restores the session however the bytes are split, and
// refuses a truncated or changed file, and a file of another shape, naming both values.
#include "server/session/session_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

namespace quire {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kBlockSize = 4;
constexpr int32_t kHeads = 2;
constexpr int64_t kRowBytes = int64_t{kBlockSize} * 3 * 4;  // of a head, in one layer's K or V
constexpr int64_t kBlockBytes = int64_t{2} * 2 * kHeads * kRowBytes;

SessionFileShape Shape() {
  return {.model = "demo",
          .model_identity = 0x0123456789abcdef,
          .kv_dtype = "float32",
          .num_layers = 2,
          .num_kv_heads = kHeads,
          .head_dim = 3,
          .block_size = kBlockSize,
          .block_bytes = kBlockBytes};
}

SessionFileReader::Limits Here() {
  return {.shape = Shape(), .max_tokens = 100, .vocab_size = 1000};
}

// A session and the pages its KV lies in.
struct Sample {
  SessionFileHeader header;
  std::vector<int32_t> tokens;
  int32_t ranks = 1;
  std::vector<std::byte> pages;  // [block][rank][page_bytes]

  size_t page_bytes() const { return static_cast<size_t>(kBlockBytes / std::min(ranks, kHeads)); }
  void MakePages() {
    pages.resize(static_cast<size_t>(header.num_blocks() * ranks) * page_bytes());
  }
  RankPages Pages() {
    return {.ranks = ranks, .page_of = [this](int32_t block, int32_t rank) {
              const auto at = static_cast<size_t>(block * ranks + rank) * page_bytes();
              return std::span(pages).subspan(at, page_bytes());
            }};
  }
};

Sample MakeSample(int32_t num_tokens, int32_t kv_tokens, uint32_t seed = 1) {
  std::mt19937 random(seed);
  Sample sample{.header = {.shape = Shape(), .num_tokens = num_tokens, .kv_tokens = kv_tokens}};
  for (int32_t i = 0; i < num_tokens; ++i) {
    sample.tokens.push_back(static_cast<int32_t>(random() % 1000));
  }
  sample.MakePages();
  for (std::byte& byte : sample.pages) byte = static_cast<std::byte>(random());
  return sample;
}

std::string Write(Sample& sample, size_t piece = 1 << 20) {
  SessionFileWriter writer(sample.header, sample.tokens, sample.Pages());
  std::string file;
  for (size_t before = 0; writer.Next(piece, &file); before = file.size()) {
    EXPECT_LE(file.size() - before, piece);
  }
  return file;
}

// The result of reading a file that comes in pieces.
struct ReadBack {
  absl::Status status;
  Sample sample;
};

ReadBack Read(const std::string& file, size_t piece = 1 << 20,
              const SessionFileReader::Limits& limits = Here(), int32_t ranks = 1) {
  SessionFileReader reader(limits);
  ReadBack back;
  back.sample.ranks = ranks;
  for (size_t at = 0; at < file.size() && back.status.ok(); at += piece) {
    std::string_view bytes = std::string_view(file).substr(at, piece);
    back.status = reader.Take(&bytes);
    if (!back.status.ok() || !reader.AwaitsPages()) continue;
    back.sample.header = reader.header();
    back.sample.tokens = reader.tokens();
    back.sample.MakePages();
    reader.SetPages(back.sample.Pages());
    back.status = reader.Take(&bytes);
    EXPECT_TRUE(bytes.empty() || !back.status.ok());
  }
  if (back.status.ok()) back.status = reader.Finish();
  if (back.status.ok()) {
    back.sample.header = reader.header();
    back.sample.tokens = reader.tokens();
    EXPECT_EQ(reader.blocks_read(), reader.header().num_blocks());
  }
  return back;
}

void ExpectSame(const Sample& read, const Sample& written) {
  EXPECT_EQ(read.tokens, written.tokens);
  EXPECT_EQ(read.header.kv_tokens, written.header.kv_tokens);
  EXPECT_EQ(read.pages, written.pages);
}

TEST(SessionFileTest, ReadsAWrittenSessionInPiecesOfAnySize) {
  for (const auto& [tokens, kv] :
       {std::pair{0, 0}, {1, 0}, {1, 1}, {9, 8}, {9, 5}, {9, 9}, {100, 99}}) {
    Sample sample = MakeSample(tokens, kv);
    const std::string file = Write(sample);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{24}, size_t{1} << 20}) {
      EXPECT_EQ(Write(sample, piece), file);
      const ReadBack back = Read(file, piece);
      ASSERT_TRUE(back.status.ok()) << back.status << " " << tokens << " " << kv;
      ExpectSame(back.sample, sample);
    }
  }
}

// The same KV in the pages of several ranks. Each byte is from its place in the whole model.
Sample SpreadOver(int32_t ranks) {
  Sample sample = MakeSample(11, 10);
  sample.ranks = ranks;
  sample.pages.clear();
  const int32_t heads = std::max(1, kHeads / ranks);  // of a rank
  for (int32_t block = 0; block < sample.header.num_blocks(); ++block) {
    for (int32_t rank = 0; rank < ranks; ++rank) {
      for (int32_t row = 0; row < 4; ++row) {  // layer and K or V
        for (int32_t head = 0; head < heads; ++head) {
          const int32_t whole = ((block * 4 + row) * kHeads) + rank * kHeads / ranks + head;
          std::mt19937 random(static_cast<uint32_t>(whole));
          for (int64_t i = 0; i < kRowBytes; ++i) {
            sample.pages.push_back(static_cast<std::byte>(random()));
          }
        }
      }
    }
  }
  return sample;
}

TEST(SessionFileTest, AFileMovesBetweenServersOfAnyNumberOfRanks) {
  Sample one = SpreadOver(1);
  const std::string file = Write(one);
  // The blocks of one rank are its pages.
  const auto* const bytes = reinterpret_cast<const char*>(one.pages.data());
  EXPECT_EQ(file.substr(file.size() - 16 - 8 - kBlockBytes, kBlockBytes),
            std::string(bytes + 2 * kBlockBytes, kBlockBytes));
  for (const int32_t ranks : {1, 2, 4, 8}) {
    Sample there = SpreadOver(ranks);
    for (const size_t piece : {size_t{1}, size_t{7}, size_t{48}, size_t{1} << 20}) {
      EXPECT_EQ(Write(there, piece), file) << ranks;
      const ReadBack back = Read(file, piece, Here(), ranks);
      ASSERT_TRUE(back.status.ok()) << back.status << " " << ranks;
      ExpectSame(back.sample, there);
    }
  }
}

TEST(SessionFileTest, BlocksInSeveralPartsAreRefused) {
  Sample sample = MakeSample(11, 10);
  sample.header.shape.parts = 2;
  const absl::Status status = Read(Write(sample)).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("its number of parts of a block is 2, this server's 1"));
}

// docs/session-format.md, written out for a session of two tokens without KV.
TEST(SessionFileTest, TheFormatMatchesItsDocument) {
  Sample sample = MakeSample(0, 0);
  sample.header.num_tokens = 2;
  sample.tokens = {1, 258};
  const std::string file = Write(sample);
  const std::string fields(
      "\x04\0demo"
      "\xef\xcd\xab\x89\x67\x45\x23\x01"
      "\x1d\0block,layer,kv,head,token,dim"
      "\x07\0float32"
      "\x02\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x01\0\0\0"
      "\x80\x01\0\0\0\0\0\0"
      "\x02\0\0\0\0\0\0\0",
      6 + 8 + 31 + 9 + 20 + 8 + 8);
  EXPECT_EQ(file.substr(0, 16), std::string("QUIRESES\x01\0\0\0\x5a\0\0\0", 16));
  EXPECT_EQ(file.substr(16, fields.size()), fields);
  EXPECT_EQ(file.substr(16 + fields.size() + 8, 8), std::string("\x01\0\0\0\x02\x01\0\0", 8));
  EXPECT_EQ(file.substr(file.size() - 16, 8), "QUIREEND");
  EXPECT_EQ(file.size(), 16 + fields.size() + 8 + 8 + 8 + 16);
}

TEST(SessionFileTest, EveryTruncationIsRefused) {
  Sample sample = MakeSample(11, 10);
  const std::string file = Write(sample);
  for (size_t length = 0; length < file.size(); ++length) {
    const ReadBack back = Read(file.substr(0, length));
    EXPECT_EQ(back.status.code(), absl::StatusCode::kInvalidArgument) << length;
    EXPECT_THAT(std::string(back.status.message()), HasSubstr("damaged")) << length;
  }
  EXPECT_THAT(std::string(Read(file + "x").status.message()), HasSubstr("after its end"));
}

TEST(SessionFileTest, EveryFlippedBitIsRefused) {
  Sample sample = MakeSample(11, 10);
  const std::string file = Write(sample);
  for (size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const absl::Status status = Read(flipped).status;
    const bool version = bit / 8 >= 8 && bit / 8 < 12;
    EXPECT_EQ(status.code(),
              version ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kInvalidArgument)
        << "byte " << bit / 8 << " " << status;
  }
}

// Blocks with right checksums in a wrong order, and a block of another session.
TEST(SessionFileTest, EveryExchangedPartIsRefused) {
  Sample sample = MakeSample(13, 12);
  const std::string file = Write(sample);
  constexpr size_t kPart = kBlockBytes + 8;
  const size_t first = file.size() - 16 - 3 * kPart;
  std::string swapped = file;
  std::swap_ranges(swapped.begin() + first, swapped.begin() + first + kPart,
                   swapped.begin() + first + kPart);
  EXPECT_EQ(Read(swapped).status.code(), absl::StatusCode::kInvalidArgument);
  Sample other = MakeSample(13, 12, 2);
  std::string grafted = file;
  grafted.replace(first, kPart, Write(other), first, kPart);
  EXPECT_EQ(Read(grafted).status.code(), absl::StatusCode::kInvalidArgument);
  std::string doubled = file;
  doubled.insert(first, file, first, kPart);
  EXPECT_EQ(Read(doubled).status.code(), absl::StatusCode::kInvalidArgument);
}

TEST(SessionFileTest, NoiseIsRefused) {
  std::mt19937 random(20261120);
  Sample sample = MakeSample(40, 39);
  const std::string file = Write(sample);
  for (int round = 0; round < 3000; ++round) {
    std::string noise = file;
    // A stretch of noise, of zeros or of the file itself somewhere in it.
    const size_t at = random() % file.size();
    const size_t length = std::min<size_t>(1 + random() % 64, file.size() - at);
    for (size_t i = 0; i < length; ++i) {
      noise[at + i] = static_cast<char>(round % 3 == 0   ? random()
                                        : round % 3 == 1 ? 0
                                                         : file[random() % file.size()]);
    }
    if (noise != file) {
      EXPECT_FALSE(Read(noise, 1 + random() % 200).status.ok());
    }
  }
}

// Forged headers with the right checksum: the reader refuses impossible values, and allocates no
// more memory than a session of this server needs.
TEST(SessionFileTest, ForgedHeadersAreRefused) {
  std::mt19937 random(7);
  const int32_t sizes[] = {0, 1, 2, 3, 4, kBlockBytes, 100, 101, 1 << 16, 1 << 30};
  const auto any = [&] { return sizes[random() % std::size(sizes)]; };
  for (int round = 0; round < 5000; ++round) {
    SessionFileHeader header{.shape = Shape(), .num_tokens = any(), .kv_tokens = any()};
    if (random() % 2 == 0) {
      int32_t* const fields[] = {&header.shape.num_layers, &header.shape.num_kv_heads,
                                 &header.shape.head_dim, &header.shape.block_size,
                                 &header.shape.parts};
      *fields[random() % std::size(fields)] = std::max(1, any());
      if (random() % 2 == 0) header.shape.block_bytes = int64_t{any()} * any();
    }
    SessionFileWriter writer(header, {}, RankPages());
    std::string file;
    writer.Next(122, &file);  // header and no tokens
    file.resize(file.size() + 4096);
    const absl::Status status = Read(file).status;
    EXPECT_FALSE(status.ok());
    const SessionFileShape& shape = header.shape;
    const SessionFileShape here = Shape();
    const bool fits = shape.num_layers == here.num_layers &&
                      shape.num_kv_heads == here.num_kv_heads && shape.head_dim == here.head_dim &&
                      shape.block_size == here.block_size && shape.parts == here.parts &&
                      shape.block_bytes == here.block_bytes && header.num_tokens <= 100;
    EXPECT_EQ(status.code() == absl::StatusCode::kFailedPrecondition, !fits) << status;
  }
}

TEST(SessionFileTest, AMismatchIsNamedWithBothValues) {
  Sample sample = MakeSample(11, 10);
  const std::string file = Write(sample);
  const struct {
    void (*change)(SessionFileReader::Limits&);
    const char* file;
    const char* here;
  } cases[] = {
      {[](auto& l) { l.shape.model_identity = 7; }, "0123456789abcdef", "0000000000000007"},
      {[](auto& l) { l.shape.kv_layout = "other"; }, "block,layer,kv,head,token,dim", "other"},
      {[](auto& l) { l.shape.kv_dtype = "bfloat16"; }, "float32", "bfloat16"},
      {[](auto& l) { l.shape.num_layers = 32; }, "is 2", "32"},
      {[](auto& l) { l.shape.num_kv_heads = 5; }, "is 2", "5"},
      {[](auto& l) { l.shape.head_dim = 128; }, "is 3", "128"},
      {[](auto& l) { l.shape.block_size = 64; }, "is 4", "64"},
      {[](auto& l) { l.shape.block_bytes = 48; }, "is 384", "48"},
      {[](auto& l) { l.max_tokens = 10; }, "11 tokens", "10"},
  };
  for (const auto& one : cases) {
    SessionFileReader::Limits limits = Here();
    one.change(limits);
    const absl::Status status = Read(file, 1 << 20, limits).status;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.file));
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.here));
  }
  SessionFileReader::Limits small = Here();
  small.vocab_size = 1;
  EXPECT_EQ(Read(file, 1 << 20, small).status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Read("{\"hello\": 1, \"world\": 2}").status.message()),
              HasSubstr("not an exported session"));
}

}  // namespace
}  // namespace quire
