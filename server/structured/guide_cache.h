// GuideCache: compiled grammars of the last requests, bounded in bytes. A tenant finds only what it
// compiled itself, so that no time tells what another asks for. The tenant that holds
// most gives up its least recently used one first. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "engine/grammar/compile_guide.h"
#include "engine/values/request.h"

namespace quire {

class GuideCache {
 public:
  // More than both bounds together are never kept; guides in use live on.
  GuideCache(size_t max_guides, size_t max_bytes);

  // Null if the tenant has not compiled this source, or no longer has it.
  std::shared_ptr<const CompiledGuide> Find(TenantId tenant, const GrammarSource& source);
  void Insert(TenantId tenant, const GrammarSource& source,
              std::shared_ptr<const CompiledGuide> guide);
  // Held now: guides grow while they are used.
  size_t bytes() const;

 private:
  using Key = std::pair<TenantId, std::string>;
  struct Entry {
    std::shared_ptr<const CompiledGuide> guide;
    uint64_t used = 0;
  };

  static Key KeyOf(TenantId tenant, const GrammarSource& source);
  static size_t BytesOf(const Key& key, const Entry& entry);
  void Shrink();

  const size_t max_guides_;
  const size_t max_bytes_;
  mutable std::mutex mutex_;  // guards the rest
  std::map<Key, Entry> entries_;
  uint64_t clock_ = 0;
};

}  // namespace quire
