// ReadProfile: one profile of the user's file of profiles.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "clients/connect/settings.h"
#include "clients/connect/source.h"

namespace quire::connect {

// The settings of the profile `name`; without a name of "default", or none if the file has no such
// profile. The file is $QUIRE_PROFILE_FILE, else $XDG_CONFIG_HOME/quire/profiles.json, else
// ~/.config/quire/profiles.json; paths in it are relative to its folder. INVALID_ARGUMENT names the
// file and the field, and for an unknown one the nearest.
absl::StatusOr<Source> ReadProfile(const std::optional<std::string>& name,
                                   const Environment& environment);

}  // namespace quire::connect
