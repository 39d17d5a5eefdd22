// Fuzz targets for text and the languages of templates and grammars: each takes any bytes and
// aborts if a parser breaks its contract.
#pragma once

#include <string_view>

namespace quire {

// Agrees with the library on input that both accept; refuses duplicate keys; limits depth.
void FuzzJson(std::string_view bytes);
// Every file that loads encodes a text and decodes it to the same text.
void FuzzTokenizerFile(std::string_view bytes);
// Scanners cut as PCRE2 does; decoding the ids of a text gives the text.
void FuzzEncode(std::string_view bytes);
// Every template that parses renders within its limits, to valid UTF-8.
void FuzzChatTemplate(std::string_view bytes);
// The messages of a chat, as JSON, in the templates of several families: the prompt keeps the
// limits, and is valid UTF-8.
void FuzzChatInput(std::string_view bytes);
// Every grammar that compiles allows a token at each place, and ends within its own bound.
void FuzzRegex(std::string_view bytes);
void FuzzGbnf(std::string_view bytes);
void FuzzLark(std::string_view bytes);
void FuzzJsonSchema(std::string_view bytes);

}  // namespace quire
