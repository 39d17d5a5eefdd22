// The table of all targets.
#include "tests/fuzz/targets/targets.h"

#include <algorithm>

#include "tests/fuzz/targets/answer_targets.h"
#include "tests/fuzz/targets/decoder_targets.h"
#include "tests/fuzz/targets/group_targets.h"
#include "tests/fuzz/targets/job_targets.h"
#include "tests/fuzz/targets/key_targets.h"
#include "tests/fuzz/targets/model_file_targets.h"
#include "tests/fuzz/targets/parser_targets.h"
#include "tests/fuzz/targets/session_targets.h"
#include "tests/fuzz/targets/tokenizer_targets.h"

namespace quire {

std::span<const FuzzTarget> FuzzTargets() {
  static constexpr FuzzTarget kTargets[] = {
      {"Answer", FuzzAnswer},
      {"Authorization", FuzzAuthorization},
      {"ChatInput", FuzzChatInput},
      {"ChatTemplate", FuzzChatTemplate},
      {"ConfigFile", FuzzConfigFile},
      {"Encode", FuzzEncode},
      {"Frames", FuzzFrames},
      {"Gbnf", FuzzGbnf},
      {"GenerationConfig", FuzzGenerationConfig},
      {"Greeting", FuzzGreeting},
      {"Handshake", FuzzHandshake},
      {"JobLine", FuzzJobLine},
      {"JobLines", FuzzJobLines},
      {"JobRecord", FuzzJobRecord},
      {"JobState", FuzzJobState},
      {"Journal", FuzzJournal},
      {"Json", FuzzJson},
      {"JsonSchema", FuzzJsonSchema},
      {"KeyTable", FuzzKeyTable},
      {"KserveRequest", FuzzKserveRequest},
      {"Lark", FuzzLark},
      {"OpenEngineRequest", FuzzOpenEngineRequest},
      {"PlanCodec", FuzzPlanCodec},
      {"Prompt", FuzzPrompt},
      {"QuireRequest", FuzzQuireRequest},
      {"Regex", FuzzRegex},
      {"Safetensors", FuzzSafetensors},
      {"SafetensorsHeader", FuzzSafetensorsHeader},
      {"SafetensorsIndex", FuzzSafetensorsIndex},
      {"SentencePiece", FuzzSentencePiece},
      {"SessionDirectory", FuzzSessionDirectory},
      {"SessionFile", FuzzSessionFile},
      {"Tekken", FuzzTekken},
      {"TokenizerConfig", FuzzTokenizerConfig},
      {"TokenizerFile", FuzzTokenizerFile},
      {"TraceHeaders", FuzzTraceHeaders},
      {"VllmEngineRequest", FuzzVllmEngineRequest},
      {"VllmRequest", FuzzVllmRequest},
      {"Wire", FuzzWire},
  };
  return kTargets;
}

const FuzzTarget* FindFuzzTarget(std::string_view name) {
  const auto all = FuzzTargets();
  const auto found = std::ranges::find(all, name, &FuzzTarget::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace quire
