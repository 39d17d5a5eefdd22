// Files are compared by their digest, so it does not matter how one is replaced. A file that is bad
// may be half written: it is refused, and said, when it is the same a second later.
#include "server/identity/key_watch.h"

#include <fstream>
#include <sstream>
#include <utility>

#include "engine/base/log.h"

namespace quire {
namespace {

std::string Text(const KeyDigest& digest) { return {digest.begin(), digest.end()}; }

// A text that differs whenever the file does.
std::string StateOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!(text << file.rdbuf())) return "unreadable";
  return Text(DigestOf(text.str()));
}

}  // namespace

KeyWatch::KeyWatch(std::string path, KeyDoor* door, AuthMetrics* metrics,
                   std::function<void(const KeyTable&)> taken)
    : path_(std::move(path)),
      door_(*door),
      metrics_(*metrics),
      taken_(std::move(taken)),
      seen_(Text(door_.table()->digest)) {
  metrics_.Keys(static_cast<int64_t>(door_.table()->keys.size()));
  thread_.emplace([this] { LookOnce(); });
}

void KeyWatch::LookOnce() {
  const std::string state = StateOf(path_);
  if (state == seen_) return;
  absl::StatusOr<KeyTable> table = ReadKeyTable(path_);
  if (!table.ok() && state != std::exchange(bad_, state)) return;  // perhaps half written
  seen_ = table.ok() ? Text(table->digest) : state;
  metrics_.Reloaded(table.ok());
  if (!table.ok()) {
    Log(Severity::kError, "key file refused: the keys in use stay",
        {{"reason", std::string(table.status().message())}});
    return;
  }
  bad_.clear();
  taken_(*table);
  const size_t keys = table->keys.size();
  door_.Replace(*std::move(table));
  metrics_.Keys(static_cast<int64_t>(keys));
  Log(Severity::kInfo, "key file taken", {{"file", path_}, {"keys", keys}});
}

}  // namespace quire
