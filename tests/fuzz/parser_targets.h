// Fuzz targets: each takes any bytes and aborts when a promise of a parser is broken.
// libfuzzer_main.cc runs one of them under clang's fuzzer, parser_fuzz_test.cc all of them on
// mutated seeds.
#pragma once

#include <string_view>

namespace quire {

// Agrees with the library on what both accept; refuses duplicate keys; bounds depth.
void FuzzJson(std::string_view bytes);
// Whatever loads encodes and gives its text back.
void FuzzTokenizerFile(std::string_view bytes);
// Scanners cut as PCRE2 does; encoding a text and decoding its ids gives the text.
void FuzzEncode(std::string_view bytes);
// Whatever parses renders within its bounds, to valid UTF-8.
void FuzzChatTemplate(std::string_view bytes);

}  // namespace quire
