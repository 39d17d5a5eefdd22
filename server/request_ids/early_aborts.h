// EarlyAborts: ids that were aborted before a request came with them. A client that gives up at
// once may have its Abort overtake its Generate on another connection; the cancel then wins all the
// same.
//
// An Abort may also come late, for a request that has just ended, and its client may use the id
// again. So ids of requests that ended a moment ago are not remembered. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "engine/values/request.h"

namespace quire {

class EarlyAborts {
 public:
  static constexpr int64_t kKeptNs = 10'000'000'000;
  // Ids remembered for one tenant, of which the oldest give way, and for all.
  static constexpr size_t kMaxOfTenant = 1024;
  static constexpr size_t kMaxIds = 16384;
  // Ids of requests that have ended; the oldest give way.
  static constexpr size_t kMaxEnded = 4096;
  static constexpr size_t kMaxIdBytes = 128;  // of GenerateRequest.request_id

  // False if the id is not remembered: a request with it has just ended, or there is no room.
  bool Remember(TenantId tenant, const std::string& request_id, int64_t now_ns);
  // A request comes: true if its id was remembered, which counts once.
  bool Take(TenantId tenant, const std::string& request_id, int64_t now_ns);
  // A request with this id has ended.
  void Ended(TenantId tenant, const std::string& request_id, int64_t now_ns);

  size_t size() const { return aborted_.size(); }

 private:
  // When each id was noted, and the notes in order. A note whose time is no longer that of its id
  // says nothing.
  struct Note {
    std::string key;
    int64_t at_ns = 0;
  };
  using Times = std::unordered_map<std::string, int64_t>;

  static std::string Key(TenantId tenant, const std::string& request_id);
  // Drops notes beyond `most`, and old ones.
  static void Trim(std::deque<Note>& notes, Times& times, size_t most, int64_t now_ns);
  void TrimAll(int64_t now_ns);

  Times aborted_, ended_;
  std::unordered_map<TenantId, std::deque<Note>> notes_;  // of aborted_
  std::deque<Note> ended_notes_;
};

}  // namespace quire
