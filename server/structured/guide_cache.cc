// A map small enough to be walked.
#include "server/structured/guide_cache.h"

namespace quire {

GuideCache::GuideCache(size_t max_guides, size_t max_bytes)
    : max_guides_(max_guides), max_bytes_(max_bytes) {}

// Lengths stand before texts, so that different sources have different keys.
GuideCache::Key GuideCache::KeyOf(TenantId tenant, const GrammarSource& source) {
  std::string text = std::to_string(static_cast<int>(source.kind)) + ":" +
                     std::to_string(source.text.size()) + ":" + source.text;
  for (const std::string& choice : source.choices) {
    text += std::to_string(choice.size()) + ":" + choice;
  }
  if (source.frame) {
    const GrammarFrame& frame = *source.frame;
    text += frame.many ? "many" : "one";
    for (const std::string* part : {&frame.open, &frame.between, &frame.close}) {
      text += std::to_string(part->size()) + ":" + *part;
    }
  }
  return {tenant, std::move(text)};
}

size_t GuideCache::BytesOf(const Key& key, const Entry& entry) {
  return sizeof(Key) + sizeof(Entry) + key.second.size() + entry.guide->bytes();
}

std::shared_ptr<const CompiledGuide> GuideCache::Find(TenantId tenant,
                                                      const GrammarSource& source) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(KeyOf(tenant, source));
  if (found == entries_.end()) return nullptr;
  found->second.used = ++clock_;
  std::shared_ptr<const CompiledGuide> guide = found->second.guide;
  Shrink();
  return guide;
}

void GuideCache::Insert(TenantId tenant, const GrammarSource& source,
                        std::shared_ptr<const CompiledGuide> guide) {
  const std::lock_guard lock(mutex_);
  entries_[KeyOf(tenant, source)] = {std::move(guide), ++clock_};
  Shrink();
}

size_t GuideCache::bytes() const {
  const std::lock_guard lock(mutex_);
  size_t total = 0;
  for (const auto& [key, entry] : entries_) total += BytesOf(key, entry);
  return total;
}

void GuideCache::Shrink() {
  for (;;) {
    size_t total = 0;
    std::map<TenantId, size_t> of_tenant;
    for (const auto& [key, entry] : entries_) {
      const size_t bytes = BytesOf(key, entry);
      total += bytes;
      of_tenant[key.first] += bytes;
    }
    if (entries_.size() <= max_guides_ && total <= max_bytes_) return;
    TenantId most = of_tenant.begin()->first;
    for (const auto& [tenant, bytes] : of_tenant) {
      if (bytes > of_tenant[most]) most = tenant;
    }
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (entry->first.first != most) continue;
      if (oldest == entries_.end() || entry->second.used < oldest->second.used) oldest = entry;
    }
    entries_.erase(oldest);
  }
}

}  // namespace quire
