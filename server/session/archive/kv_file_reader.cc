// Slices are hashed while they are in the processor's cache.
#include "server/session/archive/kv_file_reader.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr size_t kHeadBytes = 64 << 10;
constexpr int64_t kSliceBytes = 256 << 10;
constexpr int64_t kSumBytes = 8;

absl::Status Damaged(const std::string& what) { return absl::InvalidArgumentError(what); }

std::span<std::byte> AsBytes(std::string& text) {
  return std::as_writable_bytes(std::span(text.data(), text.size()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<KvFileReader>> KvFileReader::Open(
    Disk& disk, const std::string& name, const SessionFileReader::Limits& here) {
  ASSIGN_OR_RETURN(std::unique_ptr<DiskFile> file, disk.Open(name, Disk::Mode::kRead));
  std::unique_ptr<KvFileReader> reader(new KvFileReader(std::move(file), here));
  RETURN_IF_ERROR(reader->ReadHead());
  return reader;
}

absl::Status KvFileReader::ReadHead() {
  ASSIGN_OR_RETURN(const int64_t size, file_->Size());
  std::string buffer;
  while (!head_.AwaitsPages()) {
    buffer.resize(std::min(kHeadBytes, static_cast<size_t>(size - head_bytes_)));
    if (buffer.empty()) return Damaged("it has no KV");
    RETURN_IF_ERROR(file_->Read(head_bytes_, AsBytes(buffer)));
    std::string_view left = buffer;
    RETURN_IF_ERROR(head_.Take(&left));
    head_bytes_ += static_cast<int64_t>(buffer.size() - left.size());
  }
  const auto end = static_cast<int64_t>(SessionFileEnd("").size());
  if (size != head_bytes_ + num_blocks() * stride() + end) return Damaged("it has another length");
  sums_.resize(static_cast<size_t>(num_blocks()));
  return absl::OkStatus();
}

int64_t KvFileReader::stride() const { return head_.header().shape.block_bytes + kSumBytes; }

std::vector<int32_t> KvFileReader::tokens() const {
  const std::vector<int32_t>& all = head_.tokens();
  return {all.begin(), all.begin() + kv_tokens()};
}

void KvFileReader::SetPages(HostArenas arenas, std::vector<PageId> pages) {
  arenas_ = std::move(arenas);
  runs_ = RunsOf(head_.header().shape, static_cast<int32_t>(arenas_.size()));
  pages_ = std::move(pages);
  pages_.resize(static_cast<size_t>(num_blocks()), kNoPage);
}

void KvFileReader::Expect(int threads, const std::atomic<bool>* stop) {
  expected_.store(threads);
  stop_ = stop;
}

bool KvFileReader::Read() {
  while (!stop_->load() && !failed_.load()) {
    const int32_t block = next_.fetch_add(1);
    if (block >= num_blocks()) break;
    const absl::Status status = ReadBlock(block);
    if (!status.ok() && !failed_.exchange(true)) failure_ = status;
  }
  return expected_.fetch_sub(1) == 1;
}

absl::Status KvFileReader::ReadBlock(int32_t block) {
  const auto index = static_cast<size_t>(block);
  const int64_t offset = head_bytes_ + block * stride();
  std::string sum(kSumBytes, '\0');
  RETURN_IF_ERROR(file_->Read(offset + stride() - kSumBytes, AsBytes(sum)));
  sums_[index] = GetInt<uint64_t>(sum.data());
  if (pages_[index] == kNoPage) return absl::OkStatus();
  RunningHash hash;
  RETURN_IF_ERROR(ReadPages(offset, pages_[index], &hash));
  bytes_read_.fetch_add(stride());
  if (hash.TakeValue() != sums_[index]) {
    return Damaged("block " + std::to_string(block) + " has another checksum");
  }
  for (const std::shared_ptr<HostArena>& arena : arenas_) arena->Sign(pages_[index]);
  return absl::OkStatus();
}

absl::Status KvFileReader::ReadPages(int64_t offset, PageId page, RunningHash* hash) {
  for (const std::shared_ptr<HostArena>& arena : arenas_) arena->Map(page, 1);
  const int64_t bytes = head_.header().shape.block_bytes;
  for (int64_t at = 0; at < bytes;) {
    const std::vector<KvRun> slice = SliceAt(at);
    RETURN_IF_ERROR(ReadSlice(offset + at, slice, page, hash));
    for (const KvRun& run : slice) at += run.bytes;
  }
  return absl::OkStatus();
}

// The runs of a block from byte `begin` on that are read together.
std::vector<KvRun> KvFileReader::SliceAt(int64_t begin) const {
  const int64_t end = std::min(begin + kSliceBytes, head_.header().shape.block_bytes);
  std::vector<KvRun> slice;
  while (begin < end && slice.size() < DiskFile::kMaxPieces) {
    KvRun& run = slice.emplace_back(runs_->At(begin));
    run.bytes = std::min(run.bytes, end - begin);
    begin += run.bytes;
  }
  return slice;
}

// Reads a run into the page of its first rank, and copies it to the others.
absl::Status KvFileReader::ReadSlice(int64_t offset, const std::vector<KvRun>& slice, PageId page,
                                     RunningHash* hash) {
  const auto place = [&](const KvRun& run, int32_t i) {
    return run.In(arenas_[static_cast<size_t>(run.first_rank + i)]->page(page));
  };
  std::vector<std::span<std::byte>> pieces;
  pieces.reserve(slice.size());
  for (const KvRun& run : slice) pieces.push_back(place(run, 0));
  RETURN_IF_ERROR(file_->ReadPieces(offset, pieces));
  for (const KvRun& run : slice) {
    const std::span<const std::byte> bytes = place(run, 0);
    hash->Add(bytes.data(), bytes.size());
    for (int32_t i = 1; i < run.num_ranks; ++i) {
      std::memcpy(place(run, i).data(), bytes.data(), bytes.size());
    }
  }
  return absl::OkStatus();
}

absl::Status KvFileReader::Finish() {
  if (failed_.load()) return failure_;
  if (next_.load() < num_blocks()) return absl::CancelledError("stopped");
  std::string checksums = head_.checksums();
  for (const uint64_t sum : sums_) PutInt(sum, &checksums);
  const std::string expected = SessionFileEnd(checksums);
  std::string end(expected.size(), '\0');
  RETURN_IF_ERROR(file_->Read(head_bytes_ + num_blocks() * stride(), AsBytes(end)));
  return end == expected ? absl::OkStatus() : Damaged("its end is not that of its parts");
}

}  // namespace quire
