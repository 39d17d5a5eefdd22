// AddSession: the flags of `quire session`.
#pragma once

#include <CLI/App.hpp>

#include "clients/cpp/flags/invocation.h"

namespace quire::cli {

// Adds the command and its verbs to the app; the verb given is in flags->verb after the parse,
// which does not ask for one. `flags` outlives the app.
void AddSession(CLI::App* app, SessionFlags* flags);

}  // namespace quire::cli
