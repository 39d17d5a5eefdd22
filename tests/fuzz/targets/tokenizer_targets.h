// Fuzz targets for the files of a tokenizer and of chat templates in a model's directory, other
// than tokenizer.json: each takes any bytes as one of them and aborts if a reader breaks its
// contract.
#pragma once

#include <string_view>

namespace quire {

// tokenizer.model and tekken.json: each is refused by its name, or encodes a text and decodes it.
void FuzzSentencePiece(std::string_view bytes);
void FuzzTekken(std::string_view bytes);
// tokenizer_config.json beside a SentencePiece model: the tokenizer is as good as above, and each
// chat template that is not refused renders valid UTF-8.
void FuzzTokenizerConfig(std::string_view bytes);

}  // namespace quire
