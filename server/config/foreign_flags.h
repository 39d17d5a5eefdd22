// ForeignFlags: flags of vLLM, SGLang, TensorRT-LLM and llama.cpp that Quire answers by name
// although it has none such. Names with the same meaning are aliases in config_table.cc instead.
#pragma once

#include <span>

#include "flags/program.h"

namespace quire {

std::span<const flags::ForeignFlag> ForeignFlags();

}  // namespace quire
