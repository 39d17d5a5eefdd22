// One open, one write and one close for each change: a session is idle for seconds between two.
#include "server/session/archive/journals.h"

#include <algorithm>
#include <limits>

#include "engine/base/status_macros.h"

namespace quire {
namespace {

// A journal is written anew when it is longer than this many times the tokens of its session, and
// than kSmallBytes: rewriting then costs less than the writes that made it so long.
constexpr int64_t kLongest = 4;
constexpr int64_t kSmallBytes = 64 << 10;
// Each try has more room than the one before.
constexpr int kTries = 4;

bool SameLease(const JournalRecord& a, const JournalRecord& b) {
  // Instants of the steady clock and of the calendar differ by rounding.
  constexpr int64_t kMillisecond = 1'000'000;
  return a.turns == b.turns && std::abs(a.used_ns - b.used_ns) < kMillisecond &&
         a.options.ttl_seconds == b.options.ttl_seconds &&
         a.options.idle_offload_after_seconds == b.options.idle_offload_after_seconds &&
         a.options.retain_priority == b.options.retain_priority;
}

SessionKey KeyOf(const SessionInfo& info) { return {info.tenant, info.name}; }

}  // namespace

std::string TokensFile(uint64_t number) { return std::to_string(number) + kTokensSuffix; }
std::string KvFile(uint64_t number) { return std::to_string(number) + kKvSuffix; }
std::string BrokenFile(uint64_t number) { return std::to_string(number) + ".damaged"; }

uint64_t NumberIn(const std::string& file, const std::string& suffix) {
  const size_t digits = file.find_first_not_of("0123456789");
  if (digits == 0 || digits > 18 || file.substr(std::min(digits, file.size())) != suffix) return 0;
  return std::stoull(file.substr(0, digits));
}

Journals::Journals(Disk& disk, Settings settings, uint64_t next_number)
    : disk_(disk), settings_(std::move(settings)), next_number_(next_number) {}

void Journals::Adopt(uint64_t number, const Journal& journal) {
  Entry& entry = entries_[{journal.header.tenant, journal.header.name}];
  entry = {.number = number,
           .created_ns = journal.header.created_ns,
           .last = journal.last,
           .position = static_cast<int32_t>(journal.tokens.size()),
           .checksum = journal.checksum,
           .complete = true};
  SetBytes(entry, journal.bytes);
  sessions_.store(static_cast<int64_t>(entries_.size()), std::memory_order_relaxed);
}

Journals::Entry& Journals::Open(const SessionInfo& info) {
  const auto [found, is_new] = entries_.try_emplace(KeyOf(info));
  Entry& entry = found->second;
  if (!is_new) return entry;
  entry.number = next_number_++;
  entry.created_ns = info.created_ns + settings_.epoch_ns;
  sessions_.store(static_cast<int64_t>(entries_.size()), std::memory_order_relaxed);
  return entry;
}

JournalRecord Journals::RecordOf(const SessionInfo& info, int32_t kept) const {
  return {.kept = kept,
          .options = info.options,
          .turns = info.turns,
          .used_ns = info.used_ns + settings_.epoch_ns};
}

bool Journals::Append(const SessionInfo& info, int32_t kept, std::span<const int32_t> added) {
  const SessionKey key = KeyOf(info);
  const bool is_new = !entries_.contains(key);
  Entry& entry = Open(info);
  entry.dropped = false;
  if (!entry.complete && !is_new && kept == 0) return Rewrite(info, added);
  entry.complete = (entry.complete || is_new) && kept <= entry.position;
  if (!entry.complete) return false;
  return Write(key, entry, RecordOf(info, kept), added);
}

bool Journals::Renew(const SessionInfo& info) {
  const auto found = entries_.find(KeyOf(info));
  if (found == entries_.end()) return info.position == 0 && Append(info, 0, {});
  Entry& entry = found->second;
  const JournalRecord record = RecordOf(info, entry.position);
  entry.dropped = entry.dropped && SameLease(record, entry.last);
  if (!entry.complete) return false;
  return SameLease(record, entry.last) || Write(found->first, entry, record, {});
}

bool Journals::Rewrite(const SessionInfo& info, std::span<const int32_t> tokens) {
  Entry& entry = Open(info);
  SetBytes(entry, 0);
  entry.position = 0;
  return Write(KeyOf(info), entry, RecordOf(info, 0), tokens);
}

// A journal without bytes begins with its header.
bool Journals::Write(const SessionKey& key, Entry& entry, const JournalRecord& record,
                     std::span<const int32_t> added) {
  std::string bytes;
  uint64_t checksum = entry.checksum;
  if (entry.bytes == 0) {
    bytes = EncodeHeader({.model = settings_.model,
                          .model_identity = settings_.model_identity,
                          .tenant = key.first,
                          .name = key.second,
                          .created_ns = entry.created_ns},
                         &checksum);
  }
  bytes += EncodeRecord(record, added, &checksum);
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    status = entry.bytes == 0 ? Create(entry, bytes) : AppendTo(entry, bytes);
    if (!absl::IsResourceExhausted(status) || !settings_.make_room()) break;
  }
  entry.complete = status.ok();
  if (!status.ok()) settings_.on_failure("write", status);
  if (!status.ok()) return false;
  SetBytes(entry, entry.bytes + static_cast<int64_t>(bytes.size()));
  entry.checksum = checksum;
  entry.last = record;
  entry.position = record.kept + static_cast<int32_t>(added.size());
  const int64_t needed = entry.position * static_cast<int64_t>(sizeof(uint32_t));
  if (entry.bytes > kSmallBytes && entry.bytes > kLongest * needed) Compact(entry);
  return true;
}

// A part that was written is cut off again, so that the next record can follow.
absl::Status Journals::AppendTo(Entry& entry, const std::string& bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<DiskFile> file,
                   disk_.Open(TokensFile(entry.number), Disk::Mode::kAppend));
  const absl::Status status = AppendAll(*file, bytes);
  if (status.ok()) return status;
  const absl::Status cut = file->Truncate(entry.bytes);
  return cut.ok() ? status : cut;
}

// Under another name first: a session whose file is written anew keeps the old one until then.
absl::Status Journals::Create(const Entry& entry, const std::string& bytes) {
  const std::string unfinished = TokensFile(entry.number) + kUnfinishedSuffix;
  absl::Status status;
  {
    auto file = disk_.Open(unfinished, Disk::Mode::kCreate);
    status = file.ok() ? AppendAll(**file, bytes) : file.status();
  }
  if (status.ok()) status = disk_.Rename(unfinished, TokensFile(entry.number));
  if (!status.ok()) disk_.Remove(unfinished).IgnoreError();
  return status;
}

// A failure changes nothing: the long journal is as good.
void Journals::Compact(Entry& entry) {
  const absl::StatusOr<std::string> bytes = ReadAll(disk_, TokensFile(entry.number));
  if (!bytes.ok()) return;
  const absl::StatusOr<Journal> journal = ReadJournal(*bytes);
  if (!journal.ok() || journal->torn || journal->bytes != entry.bytes) return;
  uint64_t checksum = 0;
  std::string whole = EncodeHeader(journal->header, &checksum);
  JournalRecord record = entry.last;
  record.kept = 0;
  whole += EncodeRecord(record, journal->tokens, &checksum);
  if (static_cast<int64_t>(whole.size()) >= entry.bytes || !Create(entry, whole).ok()) return;
  SetBytes(entry, static_cast<int64_t>(whole.size()));
  entry.checksum = checksum;
}

void Journals::Remove(const SessionKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  const absl::Status status = disk_.Remove(TokensFile(found->second.number));
  if (!status.ok()) settings_.on_failure("remove", status);
  SetBytes(found->second, 0);
  entries_.erase(found);
  sessions_.store(static_cast<int64_t>(entries_.size()), std::memory_order_relaxed);
}

void Journals::DropOldest(int64_t bytes) {
  while (bytes > 0) {
    Entry* oldest = nullptr;
    for (auto& [key, entry] : entries_) {
      if (entry.bytes == 0) continue;
      if (oldest == nullptr || entry.last.used_ns < oldest->last.used_ns) oldest = &entry;
    }
    if (oldest == nullptr) return;
    const absl::Status status = disk_.Remove(TokensFile(oldest->number));
    if (!status.ok()) settings_.on_failure("remove", status);
    bytes -= oldest->bytes;
    SetBytes(*oldest, 0);
    oldest->complete = false;
    oldest->dropped = true;
  }
}

void Journals::SetBytes(Entry& entry, int64_t bytes) {
  bytes_.fetch_add(bytes - entry.bytes, std::memory_order_relaxed);
  entry.bytes = bytes;
}

uint64_t Journals::NumberOf(const SessionKey& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? 0 : found->second.number;
}

bool Journals::Complete(const SessionKey& key) const {
  const auto found = entries_.find(key);
  return found != entries_.end() && found->second.complete;
}

// Sessions that do not fit into the space that is left do not keep smaller ones from it.
std::vector<SessionKey> Journals::NextIncomplete(size_t limit) {
  std::vector<SessionKey> keys;
  auto at = entries_.upper_bound(last_incomplete_);
  for (size_t i = 0; i < entries_.size() && keys.size() < limit; ++i, ++at) {
    if (at == entries_.end()) at = entries_.begin();
    if (!at->second.complete && !at->second.dropped) keys.push_back(at->first);
  }
  if (!keys.empty()) last_incomplete_ = keys.back();
  return keys;
}

}  // namespace quire
