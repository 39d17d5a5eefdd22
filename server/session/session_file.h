// SessionFile: a session as bytes: its tokens, and the KV of their beginning, block by block.
// docs/session-format.md is the format. A block has the KV of the whole model, and KvRuns says
// where the host pages of the ranks hold it: servers with different numbers of ranks read the same
// files. Both directions work on pieces of any size, so that no session needs to be held twice.
//
// Files may come from anywhere. The reader uses no part before it has checked the part's checksum,
// checks every length before it allocates memory for it, and names the fault in each refusal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "server/session/kv_runs.h"

namespace quire {

// The shape of a model's KV. A server refuses a file that differs from its own in any of these.
struct SessionFileShape {
  std::string model;            // its name, for people
  uint64_t model_identity = 0;  // model_identity.h
  std::string kv_layout = "block,layer,kv,head,token,dim";
  std::string kv_dtype;
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;  // of the whole model
  int32_t head_dim = 0;
  int32_t block_size = 0;   // tokens
  int32_t parts = 1;        // of a block; servers write blocks in one part
  int64_t block_bytes = 0;  // of the whole model
};

// Where a server of so many ranks holds a block of this shape.
KvRuns RunsOf(const SessionFileShape& shape, int32_t ranks);

struct SessionFileHeader {
  SessionFileShape shape;
  int32_t num_tokens = 0;
  int32_t kv_tokens = 0;  // from the first on; their blocks follow, the last may be partly filled

  int32_t num_blocks() const {
    return static_cast<int32_t>((int64_t{kv_tokens} + shape.block_size - 1) / shape.block_size);
  }
};

// The host pages of a session's KV.
struct RankPages {
  int32_t ranks = 1;
  // The page with the rank's part of a block. Empty (when reading): the block is skipped.
  std::function<std::span<std::byte>(int32_t block, int32_t rank)> page_of;
};

// XXH3-64 of bytes that come in pieces.
class RunningHash {
 public:
  RunningHash();
  ~RunningHash();
  RunningHash(const RunningHash&) = delete;
  RunningHash& operator=(const RunningHash&) = delete;
  void Add(const void* data, size_t size);
  uint64_t TakeValue();  // begins a new hash

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// The bytes that end a file with these checksums of its parts.
std::string SessionFileEnd(const std::string& checksums);

class SessionFileWriter {
 public:
  // Next reads `pages`. Their bytes do not change until the block is written.
  SessionFileWriter(const SessionFileHeader& header, const std::vector<int32_t>& tokens,
                    RankPages pages);
  // Appends the file's next bytes, at most `limit` (> 0); false when there are none.
  bool Next(size_t limit, std::string* out);

 private:
  enum class Stage : uint8_t { kHead, kBlocks, kEnd, kDone };

  // The head; of each block its runs and their checksum; the end.
  bool NextPiece();
  void NextOfBlock();

  const SessionFileHeader header_;
  const RankPages pages_;
  const KvRuns runs_;
  std::string head_;       // header and tokens
  std::string checksums_;  // of header, tokens and blocks so far
  std::string mark_;       // a block's checksum, or the end
  Stage stage_ = Stage::kHead;
  int32_t block_ = 0;
  int64_t offset_ = 0;                // in the block
  std::span<const std::byte> piece_;  // the unsent part of the last piece
  RunningHash hash_;                  // of the block so far
};

class SessionFileReader {
 public:
  // The shape that may be imported, and the bounds of a session's tokens and of its token ids.
  struct Limits {
    SessionFileShape shape;
    int32_t max_tokens = 0;
    int32_t vocab_size = 0;
  };

  explicit SessionFileReader(Limits limits);
  // Takes bytes from the front of `bytes`: all of them, except that it stops once, before the first
  // block (AwaitsPages), until SetPages. INVALID_ARGUMENT if the bytes are damaged or no session
  // file; FAILED_PRECONDITION, with both values, if they do not fit this server. Both are final.
  absl::Status Take(std::string_view* bytes);
  bool AwaitsPages() const { return stage_ == Stage::kPages; }
  void SetPages(RankPages pages);
  // No more bytes will come. OK if the file is complete.
  absl::Status Finish() const;

  // From AwaitsPages on.
  const SessionFileHeader& header() const { return header_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  // The checksums of the parts read so far, as the end's checksum covers them.
  const std::string& checksums() const { return checksums_; }
  // Blocks whose checksum was right.
  int32_t blocks_read() const { return block_; }

 private:
  enum class Stage : uint8_t { kMagic, kHeader, kTokens, kPages, kBlocks, kBlockSum, kEnd, kDone };

  bool Gather(std::string_view* bytes, size_t size);
  absl::Status TakeMagic();
  absl::Status TakeHeader();
  absl::Status TakeTokens();
  void TakeBlockBytes(std::string_view* bytes);
  absl::Status TakeBlockSum();
  absl::Status TakeEnd();
  absl::Status CheckShape() const;

  const Limits limits_;
  Stage stage_ = Stage::kMagic;
  std::string gathered_;   // of a part that is checked as a whole
  std::string checksums_;  // of header, tokens and blocks so far
  size_t header_bytes_ = 0;
  SessionFileHeader header_;
  std::vector<int32_t> tokens_;
  RankPages pages_;
  std::optional<KvRuns> runs_;  // from SetPages on
  int32_t block_ = 0;
  int64_t offset_ = 0;  // in the block
  RunningHash hash_;    // of the block so far
};

}  // namespace quire
