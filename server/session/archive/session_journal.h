// SessionJournal: the format of the file that has a session's tokens in the session directory
// (docs/session-format.md). A header says whose session it is; each record behind it says how the
// session changed: the tokens it kept, those it got, and its options and lease as they are now.
//
// A checksum covers every byte, and each covers the one before, so records cannot be exchanged,
// repeated or left out unseen. A file that ends within its last record was torn by the death of the
// server while it wrote: no client was told of that record. Every other fault is damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/values/session.h"

namespace quire {

struct JournalHeader {
  std::string model;            // its name, for people
  uint64_t model_identity = 0;  // model_identity.h
  TenantId tenant = 0;
  SessionName name;
  int64_t created_ns = 0;  // since 1970, as all times of the file
};

struct JournalRecord {
  int32_t kept = 0;  // tokens, from the first on
  SessionOptions options;
  uint64_t turns = 0;
  int64_t used_ns = 0;
};

// A whole file.
struct Journal {
  JournalHeader header;
  JournalRecord last;
  std::vector<int32_t> tokens;
  int64_t bytes = 0;      // of its complete parts
  uint64_t checksum = 0;  // the last one, which the next record continues
  int32_t num_records = 0;
  bool torn = false;  // there are bytes behind the complete parts
};

// Both return bytes for the end of a file. `checksum` is the file's last one, and becomes that of
// the new bytes.
std::string EncodeHeader(const JournalHeader& header, uint64_t* checksum);
std::string EncodeRecord(const JournalRecord& record, std::span<const int32_t> added,
                         uint64_t* checksum);

// DATA_LOSS, saying where, if the bytes are damaged or no journal. The header and the first record
// are never torn: a journal gets its name when both are written.
absl::StatusOr<Journal> ReadJournal(std::string_view bytes);

}  // namespace quire
