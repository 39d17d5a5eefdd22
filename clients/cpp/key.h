// `quire key`: edits the key file of a server (docs/keys.md). The secret of a new key is printed
// once and stored nowhere.
#pragma once

#include "clients/cpp/call/terminal.h"
#include "clients/cpp/flags/key_flags.h"

namespace quire::cli {

// Returns the exit code.
int RunKey(const KeyFlags& flags, Terminal& terminal);

}  // namespace quire::cli
