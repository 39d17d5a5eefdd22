// The format's writer and reader, part by part in the order of docs/session-format.md.
#include "server/session/session_file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/call/status_codec.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "QUIRESES";
constexpr std::string_view kEndMark = "QUIREEND";
constexpr uint32_t kVersion = 1;
constexpr size_t kMagicBytes = 16;  // with version and the header's length
constexpr size_t kSumBytes = 8;
// Ten numbers and three short strings take a few hundred.
constexpr size_t kMaxHeaderBytes = 4096;

uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::string EncodeHeader(const SessionFileHeader& header) {
  const SessionFileShape& shape = header.shape;
  std::string out;
  PutString(shape.model, &out);
  PutInt(shape.model_identity, &out);
  PutString(shape.kv_layout, &out);
  PutString(shape.kv_dtype, &out);
  PutInt(static_cast<uint32_t>(shape.num_layers), &out);
  PutInt(static_cast<uint32_t>(shape.num_kv_heads), &out);
  PutInt(static_cast<uint32_t>(shape.head_dim), &out);
  PutInt(static_cast<uint32_t>(shape.block_size), &out);
  PutInt(static_cast<uint32_t>(shape.parts), &out);
  PutInt(static_cast<uint64_t>(shape.block_bytes), &out);
  PutInt(static_cast<uint32_t>(header.num_tokens), &out);
  PutInt(static_cast<uint32_t>(header.kv_tokens), &out);
  return out;
}

bool DecodeHeader(std::string_view bytes, SessionFileHeader* header) {
  FieldReader fields(bytes);
  SessionFileShape& shape = header->shape;
  shape.model = fields.Text();
  shape.model_identity = fields.Number<uint64_t>();
  shape.kv_layout = fields.Text();
  shape.kv_dtype = fields.Text();
  shape.num_layers = fields.Count();
  shape.num_kv_heads = fields.Count();
  shape.head_dim = fields.Count();
  shape.block_size = fields.Count();
  shape.parts = fields.Count();
  shape.block_bytes = static_cast<int64_t>(fields.Number<uint64_t>());
  header->num_tokens = fields.Count();
  header->kv_tokens = fields.Count();
  return fields.Complete();
}

absl::Status Damaged(const std::string& what) {
  absl::Status status = InvalidField("chunk.data", "the session's file is damaged: " + what);
  AddReason("SESSION_FILE_DAMAGED", &status);
  return status;
}

absl::Status Mismatch(const std::string& message) {
  return Refusal(absl::StatusCode::kFailedPrecondition, "SESSION_FILE_MISMATCH",
                 "the file does not fit this server: " + message);
}

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

KvRuns RunsOf(const SessionFileShape& shape, int32_t ranks) {
  return {{.bytes = shape.block_bytes,
           .num_layers = shape.num_layers,
           .num_kv_heads = shape.num_kv_heads},
          ranks};
}

struct RunningHash::State {
  XXH3_state_t hash;
};

RunningHash::RunningHash() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }

RunningHash::~RunningHash() = default;

void RunningHash::Add(const void* data, size_t size) {
  XXH3_64bits_update(&state_->hash, data, size);
}

uint64_t RunningHash::TakeValue() {
  const uint64_t value = XXH3_64bits_digest(&state_->hash);
  XXH3_64bits_reset(&state_->hash);
  return value;
}

std::string SessionFileEnd(const std::string& checksums) {
  std::string end(kEndMark);
  PutInt(Hash(checksums), &end);
  return end;
}

SessionFileWriter::SessionFileWriter(const SessionFileHeader& header,
                                     const std::vector<int32_t>& tokens, RankPages pages)
    : header_(header), pages_(std::move(pages)), runs_(RunsOf(header.shape, pages_.ranks)) {
  const std::string fields = EncodeHeader(header);
  head_ = kMagic;
  PutInt(kVersion, &head_);
  PutInt(static_cast<uint32_t>(fields.size()), &head_);
  head_ += fields;
  PutInt(Hash(head_), &checksums_);
  head_ += checksums_;
  std::string ids;
  ids.reserve(tokens.size() * sizeof(uint32_t));
  for (const int32_t token : tokens) PutInt(static_cast<uint32_t>(token), &ids);
  head_ += ids;
  PutInt(Hash(ids), &checksums_);
  head_.append(checksums_, kSumBytes, kSumBytes);
}

bool SessionFileWriter::Next(size_t limit, std::string* out) {
  const size_t before = out->size();
  while (limit > 0 && (!piece_.empty() || NextPiece())) {
    const size_t count = std::min(limit, piece_.size());
    out->append(reinterpret_cast<const char*>(piece_.data()), count);
    piece_ = piece_.subspan(count);
    limit -= count;
  }
  return out->size() > before;
}

bool SessionFileWriter::NextPiece() {
  switch (stage_) {
    case Stage::kHead:
      piece_ = AsBytes(head_);
      stage_ = header_.num_blocks() > 0 ? Stage::kBlocks : Stage::kEnd;
      return true;
    case Stage::kBlocks: NextOfBlock(); return true;
    case Stage::kEnd:
      mark_ = SessionFileEnd(checksums_);
      piece_ = AsBytes(mark_);
      stage_ = Stage::kDone;
      return true;
    case Stage::kDone: break;
  }
  return false;
}

void SessionFileWriter::NextOfBlock() {
  if (offset_ < header_.shape.block_bytes) {
    const KvRun run = runs_.At(offset_);
    piece_ = run.In(pages_.page_of(block_, run.first_rank));
    hash_.Add(piece_.data(), piece_.size());
    offset_ += run.bytes;
    return;
  }
  mark_.clear();
  PutInt(hash_.TakeValue(), &mark_);
  checksums_ += mark_;
  piece_ = AsBytes(mark_);
  offset_ = 0;
  if (++block_ == header_.num_blocks()) stage_ = Stage::kEnd;
}

SessionFileReader::SessionFileReader(Limits limits) : limits_(std::move(limits)) {}

absl::Status SessionFileReader::Take(std::string_view* bytes) {
  while (!bytes->empty() && stage_ != Stage::kPages) {
    switch (stage_) {
      case Stage::kMagic:
        if (Gather(bytes, kMagicBytes)) RETURN_IF_ERROR(TakeMagic());
        break;
      case Stage::kHeader:
        if (Gather(bytes, header_bytes_ + kSumBytes)) RETURN_IF_ERROR(TakeHeader());
        break;
      case Stage::kTokens:
        if (Gather(bytes, sizeof(uint32_t) * static_cast<size_t>(header_.num_tokens) + kSumBytes)) {
          RETURN_IF_ERROR(TakeTokens());
        }
        break;
      case Stage::kBlocks: TakeBlockBytes(bytes); break;
      case Stage::kBlockSum:
        if (Gather(bytes, kSumBytes)) RETURN_IF_ERROR(TakeBlockSum());
        break;
      case Stage::kEnd:
        if (Gather(bytes, kEndMark.size() + kSumBytes)) RETURN_IF_ERROR(TakeEnd());
        break;
      case Stage::kPages:
      case Stage::kDone: return Damaged("there are bytes after its end");
    }
  }
  return absl::OkStatus();
}

// Adds to gathered_ until it has `size` bytes, then returns true; the caller empties it.
bool SessionFileReader::Gather(std::string_view* bytes, size_t size) {
  const size_t count = std::min(bytes->size(), size - gathered_.size());
  gathered_.append(bytes->data(), count);
  bytes->remove_prefix(count);
  return gathered_.size() == size;
}

absl::Status SessionFileReader::TakeMagic() {
  if (gathered_.compare(0, kMagic.size(), kMagic) != 0) {
    absl::Status status = InvalidField("chunk.data", "these bytes are not an exported session");
    AddReason("NOT_A_SESSION_FILE", &status);
    return status;
  }
  const auto version = GetInt<uint32_t>(gathered_.data() + kMagic.size());
  if (version != kVersion) {
    return Mismatch("its format is version " + std::to_string(version) + ", this server's " +
                    std::to_string(kVersion));
  }
  header_bytes_ = GetInt<uint32_t>(gathered_.data() + kMagic.size() + sizeof(uint32_t));
  if (header_bytes_ > kMaxHeaderBytes) return Damaged("its header cannot be so long");
  header_bytes_ += kMagicBytes;  // the checksum is of both
  stage_ = Stage::kHeader;
  return absl::OkStatus();
}

absl::Status SessionFileReader::TakeHeader() {
  const std::string_view whole(gathered_.data(), header_bytes_);
  if (GetInt<uint64_t>(gathered_.data() + header_bytes_) != Hash(whole)) {
    return Damaged("its header has another checksum");
  }
  if (!DecodeHeader(whole.substr(kMagicBytes), &header_)) return Damaged("its header is cut");
  RETURN_IF_ERROR(CheckShape());
  checksums_ = gathered_.substr(header_bytes_);
  gathered_.clear();
  stage_ = Stage::kTokens;
  return absl::OkStatus();
}

absl::Status SessionFileReader::CheckShape() const {
  const SessionFileShape& file = header_.shape;
  const SessionFileShape& here = limits_.shape;
  if (file.model_identity != here.model_identity) {
    return Mismatch("it is of model '" + file.model + "' (" + Hex(file.model_identity) +
                    "), this server has '" + here.model + "' (" + Hex(here.model_identity) + ")");
  }
  const struct {
    const char* what;
    std::string file, here;
  } values[] = {
      {"KV layout", file.kv_layout, here.kv_layout},
      {"KV data type", file.kv_dtype, here.kv_dtype},
      {"number of layers", std::to_string(file.num_layers), std::to_string(here.num_layers)},
      {"number of parts of a block", std::to_string(file.parts), std::to_string(here.parts)},
      {"number of KV heads", std::to_string(file.num_kv_heads), std::to_string(here.num_kv_heads)},
      {"head dimension", std::to_string(file.head_dim), std::to_string(here.head_dim)},
      {"block size", std::to_string(file.block_size), std::to_string(here.block_size)},
      {"bytes of a block", std::to_string(file.block_bytes), std::to_string(here.block_bytes)},
  };
  for (const auto& value : values) {
    if (value.file != value.here) {
      return Mismatch(std::string("its ") + value.what + " is " + value.file + ", this server's " +
                      value.here);
    }
  }
  if (header_.num_tokens > limits_.max_tokens) {
    return Mismatch("it has " + std::to_string(header_.num_tokens) +
                    " tokens, this server's context " + std::to_string(limits_.max_tokens));
  }
  if (header_.kv_tokens > header_.num_tokens) return Damaged("it has more KV than tokens");
  return absl::OkStatus();
}

absl::Status SessionFileReader::TakeTokens() {
  const size_t bytes = gathered_.size() - kSumBytes;
  if (GetInt<uint64_t>(gathered_.data() + bytes) !=
      Hash(std::string_view(gathered_.data(), bytes))) {
    return Damaged("its tokens have another checksum");
  }
  tokens_.reserve(static_cast<size_t>(header_.num_tokens));
  for (size_t at = 0; at < bytes; at += sizeof(uint32_t)) {
    const auto token = GetInt<uint32_t>(gathered_.data() + at);
    if (token >= static_cast<uint32_t>(limits_.vocab_size)) {
      return Damaged("token " + std::to_string(token) + " is outside the vocabulary");
    }
    tokens_.push_back(static_cast<int32_t>(token));
  }
  checksums_.append(gathered_, bytes, kSumBytes);
  gathered_ = std::string();
  stage_ = header_.num_blocks() > 0 ? Stage::kPages : Stage::kEnd;
  return absl::OkStatus();
}

void SessionFileReader::SetPages(RankPages pages) {
  pages_ = std::move(pages);
  runs_ = RunsOf(header_.shape, pages_.ranks);
  stage_ = Stage::kBlocks;
}

void SessionFileReader::TakeBlockBytes(std::string_view* bytes) {
  const KvRun run = runs_->At(offset_);
  const size_t count = std::min(bytes->size(), static_cast<size_t>(run.bytes));
  for (int32_t i = 0; i < run.num_ranks; ++i) {
    const std::span<std::byte> page = pages_.page_of(block_, run.first_rank + i);
    if (!page.empty()) std::memcpy(run.In(page).data(), bytes->data(), count);
  }
  hash_.Add(bytes->data(), count);
  bytes->remove_prefix(count);
  offset_ += static_cast<int64_t>(count);
  if (offset_ < header_.shape.block_bytes) return;
  offset_ = 0;
  stage_ = Stage::kBlockSum;
}

absl::Status SessionFileReader::TakeBlockSum() {
  if (GetInt<uint64_t>(gathered_.data()) != hash_.TakeValue()) {
    return Damaged("block " + std::to_string(block_) + " has another checksum");
  }
  checksums_ += gathered_;
  gathered_.clear();
  stage_ = ++block_ < header_.num_blocks() ? Stage::kBlocks : Stage::kEnd;
  return absl::OkStatus();
}

absl::Status SessionFileReader::TakeEnd() {
  if (gathered_ != SessionFileEnd(checksums_)) return Damaged("its end is not that of its parts");
  stage_ = Stage::kDone;
  return absl::OkStatus();
}

absl::Status SessionFileReader::Finish() const {
  switch (stage_) {
    case Stage::kDone: return absl::OkStatus();
    case Stage::kMagic:
    case Stage::kHeader: return Damaged("it ends in its header");
    case Stage::kTokens: return Damaged("it ends in its tokens");
    case Stage::kPages:
    case Stage::kBlocks:
    case Stage::kBlockSum:
      return Damaged("it ends in block " + std::to_string(block_) + " of " +
                     std::to_string(header_.num_blocks()));
    case Stage::kEnd: break;
  }
  return Damaged("its end is missing");
}

}  // namespace quire
