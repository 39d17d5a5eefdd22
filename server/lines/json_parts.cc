// Valid JSON needs no more than a count of brackets to find where a value ends.
#include "server/lines/json_parts.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/answer_parts/json_extent.h"

namespace quire {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kBehindScalar = ",]} \t\r\n";

// Takes the value from the front of `text`, which begins with it.
std::string_view TakeValue(std::string_view* text) {
  size_t size = 0;
  if (const char first = text->front(); first == '{' || first == '[' || first == '"') {
    JsonExtent extent;
    extent.Begin(first);
    for (size = 1; !extent.Push((*text)[size]); ++size) {
    }
    ++size;
  } else {
    size = std::min(text->find_first_of(kBehindScalar), text->size());
  }
  const std::string_view value = text->substr(0, size);
  text->remove_prefix(size);
  return value;
}

// Takes white space and `also` from the front.
void Skip(std::string_view* text, char also) {
  const size_t begin = text->find_first_not_of(std::string(kSpace) + also);
  text->remove_prefix(std::min(begin, text->size()));
}

}  // namespace

std::vector<JsonPart> SplitJson(std::string_view text) {
  Skip(&text, ' ');
  const bool object = text.front() == '{';
  text.remove_prefix(1);
  std::vector<JsonPart> parts;
  for (Skip(&text, ','); text.front() != '}' && text.front() != ']'; Skip(&text, ',')) {
    JsonPart part;
    if (object) {
      part.key = nlohmann::json::parse(TakeValue(&text)).get<std::string>();
      Skip(&text, ':');
    }
    part.text = TakeValue(&text);
    parts.push_back(std::move(part));
  }
  return parts;
}

std::string_view JsonMember(std::string_view text, std::string_view key) {
  for (const JsonPart& part : SplitJson(text)) {
    if (part.key == key) return part.text;
  }
  return {};
}

}  // namespace quire
