// ServingModel: the facts about the served model that the front end needs. Immutable once built;
// shared by all RPC threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine_setup.h"
#include "server/answer_parts/call_format.h"
#include "server/answer_parts/reasoning_format.h"
#include "server/sampling/logit_processors.h"
#include "server/text/template/chat_templates.h"
#include "server/text/tokenizer.h"

namespace quire {

struct ServingModel {
  std::string name;                      // of answers and metrics: the first served name
  std::vector<std::string> other_names;  // aliases that requests may use
  uint64_t identity = 0;                 // ModelIdentity
  EngineSetup setup;
  std::string device_description;  // e.g. "cpu (AVX-512, 2 threads)"
  std::string text_directory;      // of the tokenizer's files; empty: the model's directory
  std::unique_ptr<const Tokenizer> tokenizer;         // null: requests carry token ids only
  ChatTemplates chat_templates;                       // with the reasons of those that are refused
  const ReasoningFormat* reasoning_format = nullptr;  // null: not known
  const CallFormat* call_format = nullptr;            // null: not known
  LogitProcessors logit_processors;                   // that requests may name
};

}  // namespace quire
