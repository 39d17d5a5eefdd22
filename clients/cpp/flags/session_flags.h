// SessionCommand: the rows of `quire session` and its verbs.
#pragma once

#include "clients/cpp/flags/invocation.h"
#include "flags/program.h"

namespace quire::cli {

// The rows set line->session, which outlives them; its verb is the command's name after the parse.
flags::Command SessionCommand(Invocation* line);

}  // namespace quire::cli
