// LarkTerminalBody: the terminals of Lark's module "common".
#pragma once

#include <string_view>

namespace quire {

// A terminal's definition in the notation of Lark; empty if the module has none of this name.
std::string_view LarkTerminalBody(std::string_view name);

}  // namespace quire
