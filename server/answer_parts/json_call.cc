// A state for each place of an object where something different may follow.
#include "server/answer_parts/json_call.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "server/answer_parts/marker_scan.h"

namespace quire {
namespace {

// The text that a JSON string stands for; nullopt if it stands for none.
std::optional<std::string> TextOf(const std::string& quoted) {
  const auto value = nlohmann::json::parse(quoted, nullptr, /*allow_exceptions=*/false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

}  // namespace

JsonCall::State JsonCall::Push(char byte, AnswerWriter* out) {
  if (place_ == Place::kInKey) return InKey(byte);
  if (place_ == Place::kInValue) return InValue(byte, out);
  if (place_ != Place::kOpen && IsJsonSpace(byte)) return State::kOpen;
  switch (place_) {
    case Place::kOpen:
      place_ = Place::kFirstKey;
      return byte == '{' ? State::kOpen : State::kBroken;
    case Place::kFirstKey:
    case Place::kKey:
      place_ = Place::kInKey;
      key_.clear();
      return byte == '"' ? State::kOpen : State::kBroken;
    case Place::kColon: place_ = Place::kValue; return byte == ':' ? State::kOpen : State::kBroken;
    case Place::kValue: return BeginValue(byte, out);
    default: return After(byte, out);
  }
}

JsonCall::State JsonCall::InKey(char byte) {
  if (byte == '"' && !escaped_) {
    place_ = Place::kColon;
    return State::kOpen;
  }
  escaped_ = byte == '\\' && !escaped_;
  key_ += byte;
  return State::kOpen;
}

JsonCall::State JsonCall::BeginValue(char byte, AnswerWriter* out) {
  const bool is_arguments = key_ == "arguments" || key_ == "parameters";
  member_ = key_ == "name" ? Member::kName : is_arguments ? Member::kArguments : Member::kOther;
  if (member_ == Member::kName && (name_ || byte != '"')) return State::kBroken;
  if (is_arguments && (arguments_ || (byte != '{' && byte != '"'))) return State::kBroken;
  scalar_ = byte != '{' && byte != '[' && byte != '"';
  constexpr std::string_view kScalars = "-0123456789tfn";
  if (scalar_ && kScalars.find(byte) == std::string_view::npos) return State::kBroken;
  place_ = Place::kInValue;
  value_ = byte;
  if (!scalar_) extent_.Begin(byte);
  if (is_arguments && byte == '{' && name_) {
    out->BeginCall(*name_);
    out->Arguments(value_);
    begun_ = true;
  }
  return State::kOpen;
}

JsonCall::State JsonCall::InValue(char byte, AnswerWriter* out) {
  if (scalar_) {
    if (byte != ',' && byte != '}' && !IsJsonSpace(byte)) return State::kOpen;
    place_ = Place::kAfter;
    return IsJsonSpace(byte) ? State::kOpen : After(byte, out);
  }
  if (Streams()) {
    out->Arguments({&byte, 1});
  } else {
    value_ += byte;
  }
  if (!extent_.Push(byte)) return State::kOpen;
  place_ = Place::kAfter;
  return EndValue();
}

JsonCall::State JsonCall::EndValue() {
  std::string value = std::exchange(value_, std::string());
  if (member_ == Member::kOther) return State::kOpen;
  if (member_ == Member::kName) {
    name_ = TextOf(value);
    return name_ && tools_.contains(*name_) ? State::kOpen : State::kBroken;
  }
  arguments_ = value.starts_with('"') ? TextOf(value) : std::move(value);
  return arguments_ && (begun_ || arguments_->starts_with('{')) ? State::kOpen : State::kBroken;
}

JsonCall::State JsonCall::After(char byte, AnswerWriter* out) {
  if (byte == '}') return End(out);
  place_ = Place::kKey;
  return byte == ',' ? State::kOpen : State::kBroken;
}

JsonCall::State JsonCall::End(AnswerWriter* out) {
  if (!begun_) {
    if (!name_ || (needs_arguments_ && !arguments_)) return State::kBroken;
    out->BeginCall(*name_);
    out->Arguments(arguments_.value_or("{}"));
    begun_ = true;
  }
  out->EndCall();
  return State::kDone;
}

}  // namespace quire
