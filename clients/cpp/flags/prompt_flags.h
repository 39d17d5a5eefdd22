// The rows of `quire generate`, `attach`, `chat`, `tokenize` and `detokenize`.
#pragma once

#include "clients/cpp/flags/invocation.h"
#include "flags/program.h"

namespace quire::cli {

// Each command's rows set `line`, which outlives them.
flags::Command GenerateCommand(Invocation* line);
flags::Command AttachCommand(Invocation* line);
flags::Command ChatCommand(Invocation* line);
flags::Command TokenizeCommand(Invocation* line);
flags::Command DetokenizeCommand(Invocation* line);

}  // namespace quire::cli
