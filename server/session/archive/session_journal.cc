// Parts in the order of docs/session-format.md.
#include "server/session/archive/session_journal.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "engine/base/status_macros.h"
#include "server/session/little_endian.h"

namespace quire {
namespace {

constexpr std::string_view kMagic = "QUIREJNL";
constexpr uint32_t kVersion = 1;
constexpr size_t kMagicBytes = 16;  // with version and the header's length
constexpr size_t kSumBytes = 8;
constexpr size_t kRecordBytes = 44;  // its fields

uint64_t Hash(std::string_view bytes, uint64_t before) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), before);
}

// Walks along the parts of a file.
class PartReader {
 public:
  explicit PartReader(std::string_view bytes) : bytes_(bytes) {}

  bool AtEnd() const { return at_ == bytes_.size(); }
  size_t at() const { return at_; }
  uint64_t checksum() const { return checksum_; }
  // OUT_OF_RANGE: the file ends within the part.
  absl::StatusOr<std::string_view> Part(size_t size) {
    if (bytes_.size() - at_ < size + kSumBytes) return absl::OutOfRangeError("cut");
    const std::string_view part = bytes_.substr(at_, size);
    const uint64_t checksum = Hash(part, checksum_);
    if (GetInt<uint64_t>(part.data() + size) != checksum) return Damaged("a wrong checksum");
    checksum_ = checksum;
    at_ += size + kSumBytes;
    return part;
  }
  absl::Status Damaged(const std::string& what) const {
    return absl::DataLossError(what + " at byte " + std::to_string(at_));
  }

 private:
  const std::string_view bytes_;
  size_t at_ = 0;
  uint64_t checksum_ = 0;
};

absl::StatusOr<JournalHeader> TakeHeader(std::string_view bytes, PartReader* parts) {
  const std::string_view magic = bytes.substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size())) return parts->Damaged("no journal");
  ASSIGN_OR_RETURN(const std::string_view first, parts->Part(kMagicBytes));
  const auto version = GetInt<uint32_t>(first.data() + kMagic.size());
  const auto size = GetInt<uint32_t>(first.data() + kMagic.size() + sizeof(uint32_t));
  if (version != kVersion) return parts->Damaged("version " + std::to_string(version));
  ASSIGN_OR_RETURN(const std::string_view part, parts->Part(size));
  FieldReader fields(part);
  JournalHeader header;
  header.model = fields.Text();
  header.model_identity = fields.Number<uint64_t>();
  header.tenant = fields.Number<uint64_t>();
  header.name = fields.Text();
  header.created_ns = fields.Number<int64_t>();
  if (!fields.Complete()) return parts->Damaged("a header of another form");
  return header;
}

// Changes `journal` only if the whole record is there.
absl::Status TakeRecord(PartReader* parts, Journal* journal) {
  ASSIGN_OR_RETURN(const std::string_view part, parts->Part(kRecordBytes));
  FieldReader fields(part);
  JournalRecord record;
  record.kept = fields.Count();
  const int32_t added = fields.Count();
  record.turns = fields.Number<uint64_t>();
  record.options.ttl_seconds = fields.Double();
  record.options.idle_offload_after_seconds = fields.Double();
  record.options.retain_priority = fields.Number<int32_t>();
  record.used_ns = fields.Number<int64_t>();
  if (!fields.Complete() || record.kept > static_cast<int32_t>(journal->tokens.size())) {
    return parts->Damaged("a record that does not continue the one before");
  }
  std::string_view ids;
  if (added > 0) {
    ASSIGN_OR_RETURN(ids, parts->Part(sizeof(uint32_t) * static_cast<size_t>(added)));
  }
  journal->tokens.resize(static_cast<size_t>(record.kept));
  for (size_t at = 0; at < ids.size(); at += sizeof(uint32_t)) {
    journal->tokens.push_back(GetInt<int32_t>(ids.data() + at));
  }
  journal->last = record;
  ++journal->num_records;
  return absl::OkStatus();
}

void EndPart(size_t begin, uint64_t* checksum, std::string* out) {
  *checksum = Hash(std::string_view(*out).substr(begin), *checksum);
  PutInt(*checksum, out);
}

}  // namespace

std::string EncodeHeader(const JournalHeader& header, uint64_t* checksum) {
  std::string fields;
  PutString(header.model, &fields);
  PutInt(header.model_identity, &fields);
  PutInt(header.tenant, &fields);
  PutString(header.name, &fields);
  PutInt(header.created_ns, &fields);
  std::string out(kMagic);
  PutInt(kVersion, &out);
  PutInt(static_cast<uint32_t>(fields.size()), &out);
  *checksum = 0;
  EndPart(0, checksum, &out);
  const size_t begin = out.size();
  out += fields;
  EndPart(begin, checksum, &out);
  return out;
}

std::string EncodeRecord(const JournalRecord& record, std::span<const int32_t> added,
                         uint64_t* checksum) {
  std::string out;
  out.reserve(kRecordBytes + 2 * kSumBytes + sizeof(uint32_t) * added.size());
  PutInt(static_cast<uint32_t>(record.kept), &out);
  PutInt(static_cast<uint32_t>(added.size()), &out);
  PutInt(record.turns, &out);
  PutDouble(record.options.ttl_seconds, &out);
  PutDouble(record.options.idle_offload_after_seconds, &out);
  PutInt(record.options.retain_priority, &out);
  PutInt(record.used_ns, &out);
  EndPart(0, checksum, &out);
  if (added.empty()) return out;
  const size_t begin = out.size();
  for (const int32_t token : added) PutInt(static_cast<uint32_t>(token), &out);
  EndPart(begin, checksum, &out);
  return out;
}

absl::StatusOr<Journal> ReadJournal(std::string_view bytes) {
  PartReader parts(bytes);
  Journal journal;
  absl::StatusOr<JournalHeader> header = TakeHeader(bytes, &parts);
  if (absl::IsOutOfRange(header.status())) return parts.Damaged("no complete header");
  if (!header.ok()) return header.status();
  journal.header = *std::move(header);
  while (!parts.AtEnd()) {
    const absl::Status status = TakeRecord(&parts, &journal);
    journal.torn = absl::IsOutOfRange(status);
    if (journal.torn) break;
    RETURN_IF_ERROR(status);
    journal.bytes = static_cast<int64_t>(parts.at());
    journal.checksum = parts.checksum();
  }
  if (journal.num_records == 0) return parts.Damaged("no complete record");
  return journal;
}

}  // namespace quire
