// Converts tokenizer.model, a SentencePiece model, to the parts of a tokenizer.json. Any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "server/text/tokenizer_file.h"

namespace quire {

// `config` is the object of tokenizer_config.json, empty if the directory has none: it says which
// special tokens frame a text (add_bos_token, default true; add_eos_token, default false), which
// tokens were added (added_tokens_decoder), and, with `legacy` false, that only the begin of a text
// gets a space and not each part between special tokens. NOT_FOUND or INVALID_ARGUMENT name `path`;
// models of words or characters, and unused pieces of a BPE model, are refused. User-defined pieces
// of a BPE model are found in the text first, as SentencePiece does, unless only its begin gets a
// space.
absl::StatusOr<TokenizerFile> ReadSentencePieceFile(const std::string& path,
                                                    const nlohmann::json& config);

}  // namespace quire
