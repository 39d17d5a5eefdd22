// The bodies of the targets; CHECK is the oracle.
#include "tests/fuzz/targets/session_targets.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kernels/check.h"
#include "server/session/archive/session_directory.h"
#include "server/session/archive/session_journal.h"
#include "server/session/little_endian.h"
#include "server/session/session_file.h"
#include "tests/fuzz/targets/session_seeds.h"
#include "tests/server/memory_disk.h"

namespace quire {
namespace {

constexpr size_t kMagicBytes = 16;  // of both files: magic, version, length of the header
constexpr size_t kSumBytes = 8;
constexpr size_t kRecordBytes = 44;

// Writes the checksum behind the part that begins at `at`; gives the next part's place, or npos if
// the file ends before that.
size_t SealPart(size_t at, size_t size, uint64_t* before, std::string* file) {
  if (at == std::string::npos || size > file->size() || at > file->size() - size) {
    return std::string::npos;
  }
  const size_t end = at + size;
  if (file->size() - end < kSumBytes) return std::string::npos;
  *before = XXH3_64bits_withSeed(file->data() + at, size, *before);
  std::string sum;
  PutInt(*before, &sum);
  file->replace(end, kSumBytes, sum);
  return end + kSumBytes;
}

uint32_t WordAt(const std::string& file, size_t at) {
  if (at == std::string::npos || file.size() < 4 || at > file.size() - 4) return 0;
  return GetInt<uint32_t>(file.data() + at);
}

// With right checksums of its header and of as many tokens as a good file has, and, if nothing but
// the end follows, with a right end.
std::string SealedSession(std::string file) {
  std::string sums;
  size_t at = 0;
  for (const size_t size : {kMagicBytes + WordAt(file, 12), sizeof(uint32_t) * kSeedTokens}) {
    uint64_t sum = 0;
    at = SealPart(at, size, &sum, &file);
    PutInt(sum, &sums);
  }
  const std::string end = SessionFileEnd(sums);
  if (at != std::string::npos && file.size() == at + end.size()) file.replace(at, end.size(), end);
  return file;
}

// Holds for all that a server uses of a file, from its tokens on.
void CheckAccepted(const SessionFileReader& reader) {
  const SessionFileReader::Limits limits = SeedLimits();
  const SessionFileHeader& header = reader.header();
  CHECK(header.num_tokens >= 0 && header.num_tokens <= limits.max_tokens);
  CHECK(header.kv_tokens >= 0 && header.kv_tokens <= header.num_tokens);
  CHECK_EQ(reader.tokens().size(), static_cast<size_t>(header.num_tokens));
  for (const int32_t id : reader.tokens()) CHECK(id >= 0 && id < limits.vocab_size);
}

std::string SealedJournal(std::string file) {
  uint64_t sum = 0;
  size_t at = SealPart(0, kMagicBytes, &sum, &file);
  at = SealPart(at, WordAt(file, 12), &sum, &file);
  while (at < file.size()) {
    const uint32_t added = WordAt(file, at + 4);
    at = SealPart(at, kRecordBytes, &sum, &file);
    if (added > 0) at = SealPart(at, sizeof(uint32_t) * size_t{added}, &sum, &file);
  }
  return file;
}

absl::Status ReadSession(std::string_view bytes, size_t piece) {
  const SessionFileReader::Limits limits = SeedLimits();
  SessionFileReader reader(limits);
  std::vector<std::byte> page(static_cast<size_t>(limits.shape.block_bytes));
  absl::Status status;
  for (size_t at = 0; at < bytes.size() && status.ok(); at += piece) {
    std::string_view part = bytes.substr(at, piece);
    status = reader.Take(&part);
    if (!status.ok() || !reader.AwaitsPages()) continue;
    CheckAccepted(reader);
    reader.SetPages({.ranks = 1, .page_of = [&page](int32_t, int32_t) -> std::span<std::byte> {
                       return page;
                     }});
    status = reader.Take(&part);
    CHECK(part.empty() || !status.ok());
  }
  if (status.ok()) status = reader.Finish();
  if (!status.ok()) return status;
  CheckAccepted(reader);
  CHECK_EQ(reader.blocks_read(), reader.header().num_blocks());
  return status;
}

void CheckJournal(const std::string& file) {
  const absl::StatusOr<Journal> journal = ReadJournal(file);
  if (!journal.ok()) {
    CHECK(journal.status().code() == absl::StatusCode::kDataLoss);
    return;
  }
  CHECK(journal->num_records > 0);
  CHECK_LE(static_cast<size_t>(journal->bytes), file.size());
  CHECK_EQ(journal->torn, static_cast<size_t>(journal->bytes) != file.size());
  CHECK(journal->last.kept >= 0);
  CHECK_LE(static_cast<size_t>(journal->last.kept), journal->tokens.size());
  const auto again = ReadJournal(file.substr(0, static_cast<size_t>(journal->bytes)));
  CHECK(again.ok() && !again->torn);
  CHECK(again->tokens == journal->tokens && again->checksum == journal->checksum);
}

}  // namespace

void FuzzSessionFile(std::string_view bytes) {
  for (const std::string& file : {std::string(bytes), SealedSession(std::string(bytes))}) {
    const absl::Status whole = ReadSession(file, file.size() + 1);
    CHECK(whole.ok() || !whole.message().empty());
    for (const size_t piece : {1, 13}) CHECK(ReadSession(file, piece).code() == whole.code());
  }
}

void FuzzJournal(std::string_view bytes) {
  CheckJournal(std::string(bytes));
  CheckJournal(SealedJournal(std::string(bytes)));
}

void FuzzSessionDirectory(std::string_view bytes) {
  for (const std::string& file : {std::string(bytes), SealedJournal(std::string(bytes))}) {
    const auto folder = std::make_shared<MemoryFolder>();
    folder->files = {{"3.tokens", file},
                     {"3.kv", std::string(bytes)},
                     {"4.kv", file},
                     {"5.tokens", SeedJournal("hen")},
                     {"6.tokens.unfinished", file}};
    MemoryDisk disk(folder, std::make_shared<DiskFaults>());
    const auto contents = ReadDirectory(disk, "demo", kSeedModel);
    if (!contents.ok()) {
      // A journal of another model, which may be right.
      CHECK(contents.status().code() == absl::StatusCode::kFailedPrecondition);
      continue;
    }
    CHECK_EQ(contents->damaged, int64_t{folder->files.contains("3.damaged")});
    // The bytes may be a good journal of the session that the later one has too.
    const bool left = folder->files.contains("3.tokens");
    CHECK_EQ(contents->sessions.size(), size_t{1} + left);
    CHECK(contents->damaged == 0 || !left);
    CHECK_EQ(contents->sessions.front().number, uint64_t{5});
    CHECK(!folder->files.contains("4.kv") && !folder->files.contains("6.tokens.unfinished"));
    CHECK(contents->next_number > 5);
  }
}

}  // namespace quire
