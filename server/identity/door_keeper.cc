// Chooses the door, and passes limits on.
#include "server/identity/door_keeper.h"

#include <unordered_map>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/identity/open_door.h"

namespace quire {

absl::StatusOr<std::unique_ptr<DoorKeeper>> DoorKeeper::Open(const Options& options,
                                                             AuthMetrics* metrics) {
  if (options.api_keys.empty()) {
    auto door = std::make_unique<OpenDoor>(options.everybody_administers);
    return std::unique_ptr<DoorKeeper>(new DoorKeeper("", std::move(door), nullptr, metrics));
  }
  ASSIGN_OR_RETURN(KeyTable table, ReadKeyTable(options.api_keys));
  auto door = std::make_unique<KeyDoor>(std::move(table), options.served);
  KeyDoor* const keys = door.get();
  return std::unique_ptr<DoorKeeper>(
      new DoorKeeper(options.api_keys, std::move(door), keys, metrics));
}

DoorKeeper::DoorKeeper(std::string api_keys, std::unique_ptr<Door> door, KeyDoor* keys,
                       AuthMetrics* metrics)
    : api_keys_(std::move(api_keys)), metrics_(*metrics), door_(std::move(door)), keys_(keys) {}

std::vector<std::string> DoorKeeper::NamesOf(const std::vector<TenantStats>& tenants) const {
  std::vector<std::string> names(tenants.size());
  if (keys_ == nullptr) return names;
  const std::shared_ptr<const KeyTable> table = keys_->table();
  std::unordered_map<TenantId, std::string_view> by_number;
  for (const std::string& name : table->tenants) by_number[TenantIdOf(name)] = name;
  for (size_t i = 0; i < tenants.size(); ++i) names[i] = by_number[tenants[i].tenant];
  return names;
}

void DoorKeeper::Watch(std::function<void(const TenantTable&)> apply) {
  if (keys_ == nullptr) return;
  apply(keys_->table()->limits);
  watch_ = std::make_unique<KeyWatch>(
      api_keys_, keys_, &metrics_,
      [apply = std::move(apply)](const KeyTable& table) { apply(table.limits); });
}

}  // namespace quire
