// Gathers parts, and makes ids.
#include "server/answer_parts/answer_writer.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

namespace quire {
namespace {

// Mistral's templates refuse ids of any other form.
std::string MakeId(uint64_t seed, uint32_t index) {
  static constexpr char kDigits[] =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const uint64_t key[2] = {seed, index};
  uint64_t bits = XXH3_64bits(key, sizeof key);
  std::string id;
  for (int i = 0; i < 9; ++i, bits /= 62) id += kDigits[bits % 62];
  return id;
}

}  // namespace

void AppendCall(ToolCallPart part, std::vector<ToolCallPart>* calls) {
  if (calls->empty() || calls->back().index != part.index) {
    calls->push_back(std::move(part));
  } else {
    calls->back().arguments += part.arguments;
  }
}

void AnswerWriter::BeginCall(std::string name) {
  parts_.calls.push_back(
      {.index = begun_, .id = MakeId(seed_, begun_), .name = std::move(name), .arguments = ""});
  ++begun_;
}

void AnswerWriter::Arguments(std::string_view json) {
  if (parts_.calls.empty()) parts_.calls.push_back({begun_ - 1, "", "", ""});
  parts_.calls.back().arguments += json;
}

AnswerParts AnswerWriter::Take() { return std::exchange(parts_, AnswerParts()); }

}  // namespace quire
