// Two tables: what a name sets, and which names stand for it in JSON.
#include "server/wire/kserve/infer_parameters.h"

#include <cmath>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/numbers.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"
#include "server/wire/field_names.h"

namespace quire {
namespace {

using Elements = std::vector<Element>;

constexpr JsonLimits kJsonLimits = {.max_depth = 4, .max_bytes = 64 << 10, .max_values = 4096};

// --- One element as the type that a setting has. Clients send numbers as strings too.

absl::StatusOr<double> AsNumber(const std::string& name, const Element& element) {
  double number = 0;
  if (const auto* text = std::get_if<std::string>(&element)) {
    if (absl::SimpleAtod(*text, &number)) return number;
  } else if (const auto* real = std::get_if<double>(&element)) {
    return *real;
  } else if (const auto* whole = std::get_if<int64_t>(&element)) {
    return static_cast<double>(*whole);
  } else if (const auto* natural = std::get_if<uint64_t>(&element)) {
    return static_cast<double>(*natural);
  }
  return InvalidField(name, "must be a number");
}

absl::StatusOr<uint64_t> AsNatural(const std::string& name, const Element& element) {
  uint64_t number = 0;
  if (const auto* text = std::get_if<std::string>(&element)) {
    if (absl::SimpleAtoi(*text, &number)) return number;
  } else if (const auto* natural = std::get_if<uint64_t>(&element)) {
    return *natural;
  } else if (const auto* whole = std::get_if<int64_t>(&element)) {
    if (*whole >= 0) return static_cast<uint64_t>(*whole);
  }
  return InvalidField(name, "must be a whole number, at least 0");
}

absl::StatusOr<uint32_t> AsCount(const std::string& name, const Element& element) {
  ASSIGN_OR_RETURN(const uint64_t number, AsNatural(name, element));
  if (number > 0xFFFFFFFFu) return InvalidField(name, "must be below 2^32");
  return static_cast<uint32_t>(number);
}

absl::StatusOr<bool> AsBool(const std::string& name, const Element& element) {
  bool value = false;
  if (const auto* truth = std::get_if<bool>(&element)) return *truth;
  if (const auto* text = std::get_if<std::string>(&element)) {
    if (absl::SimpleAtob(*text, &value)) return value;
  }
  return InvalidField(name, "must be true or false");
}

absl::StatusOr<std::string> AsText(const std::string& name, const Element& element) {
  const auto* text = std::get_if<std::string>(&element);
  if (text == nullptr) return InvalidField(name, "must be a string");
  const size_t valid = ValidUtf8Prefix(*text);
  if (valid == text->size()) return *text;
  return InvalidField(name, "not valid UTF-8 at byte " + std::to_string(valid));
}

// --- Setters.

using Setter = std::function<absl::Status(const std::string& name, const Elements& elements,
                                          InferSettings* settings)>;

absl::Status CheckOne(const std::string& name, const Elements& elements) {
  if (elements.size() == 1) return absl::OkStatus();
  return InvalidField(name, "must have one element, not " + std::to_string(elements.size()) +
                                "; send one request for each prompt");
}

Setter Float(void (v1::SamplingParams::*set)(float), bool (v1::SamplingParams::*has)() const) {
  return [=](const std::string& name, const Elements& elements, InferSettings* settings) {
    RETURN_IF_ERROR(CheckOne(name, elements));
    v1::SamplingParams* sampling = settings->request->mutable_sampling();
    if ((sampling->*has)()) return InvalidField(name, "is there more than once");
    ASSIGN_OR_RETURN(const double number, AsNumber(name, elements[0]));
    (sampling->*set)(static_cast<float>(number));
    return absl::OkStatus();
  };
}

Setter Count(void (v1::StopConditions::*set)(uint32_t), bool (v1::StopConditions::*has)() const) {
  return [=](const std::string& name, const Elements& elements, InferSettings* settings) {
    RETURN_IF_ERROR(CheckOne(name, elements));
    v1::StopConditions* stop = settings->request->mutable_stop();
    if ((stop->*has)()) return InvalidField(name, "is there more than once");
    ASSIGN_OR_RETURN(const uint32_t number, AsCount(name, elements[0]));
    (stop->*set)(number);
    return absl::OkStatus();
  };
}

Setter Flag(bool InferSettings::*flag) {
  return [=](const std::string& name, const Elements& elements, InferSettings* settings) {
    RETURN_IF_ERROR(CheckOne(name, elements));
    ASSIGN_OR_RETURN(settings->*flag, AsBool(name, elements[0]));
    return absl::OkStatus();
  };
}

// A setting that has one value here; others are refused. `reason`, a literal: why.
Setter Only(Element only, const char* reason) {
  return [=](const std::string& name, const Elements& elements, InferSettings*) {
    RETURN_IF_ERROR(CheckOne(name, elements));
    bool same = false;
    if (std::holds_alternative<bool>(only)) {
      ASSIGN_OR_RETURN(const bool value, AsBool(name, elements[0]));
      same = value == std::get<bool>(only);
    } else {
      ASSIGN_OR_RETURN(const uint64_t value, AsNatural(name, elements[0]));
      same = value == std::get<uint64_t>(only);
    }
    return same ? absl::OkStatus() : NotServed(name, reason);
  };
}

absl::Status SetPrompt(const std::string& name, const Elements& elements, InferSettings* settings) {
  RETURN_IF_ERROR(CheckOne(name, elements));
  ASSIGN_OR_RETURN(*settings->request->mutable_text(), AsText(name, elements[0]));
  return absl::OkStatus();
}

absl::Status SetTopK(const std::string& name, const Elements& elements, InferSettings* settings) {
  RETURN_IF_ERROR(CheckOne(name, elements));
  v1::SamplingParams* sampling = settings->request->mutable_sampling();
  if (sampling->has_top_k()) return InvalidField(name, "is there more than once");
  ASSIGN_OR_RETURN(const uint32_t k, AsCount(name, elements[0]));
  sampling->set_top_k(k);
  return absl::OkStatus();
}

absl::Status SetSeed(const std::string& name, const Elements& elements, InferSettings* settings) {
  RETURN_IF_ERROR(CheckOne(name, elements));
  v1::SamplingParams* sampling = settings->request->mutable_sampling();
  if (sampling->has_seed()) return InvalidField(name, "is there more than once");
  ASSIGN_OR_RETURN(const uint64_t seed, AsNatural(name, elements[0]));
  sampling->set_seed(seed);
  return absl::OkStatus();
}

absl::Status AddStops(const std::string& name, const Elements& elements, InferSettings* settings) {
  v1::StopConditions* stop = settings->request->mutable_stop();
  if (!stop->stop().empty()) return InvalidField(name, "is there more than once");
  for (const Element& element : elements) {
    ASSIGN_OR_RETURN(*stop->add_stop(), AsText(name, element));
  }
  return absl::OkStatus();
}

absl::Status AddStopIds(const std::string& name, const Elements& elements,
                        InferSettings* settings) {
  for (const Element& element : elements) {
    ASSIGN_OR_RETURN(const uint32_t id, AsCount(name, element));
    settings->request->mutable_stop()->add_stop_token_ids(id);
  }
  return absl::OkStatus();
}

absl::Status SetIgnoreEos(const std::string& name, const Elements& elements,
                          InferSettings* settings) {
  RETURN_IF_ERROR(CheckOne(name, elements));
  ASSIGN_OR_RETURN(const bool value, AsBool(name, elements[0]));
  settings->request->mutable_stop()->set_ignore_eos(value);
  return absl::OkStatus();
}

absl::Status SetIncludeStop(const std::string& name, const Elements& elements,
                            InferSettings* settings) {
  RETURN_IF_ERROR(CheckOne(name, elements));
  ASSIGN_OR_RETURN(const bool value, AsBool(name, elements[0]));
  settings->request->mutable_stop()->set_include_stop_in_output(value);
  return absl::OkStatus();
}

absl::Status SetSkipSpecial(const std::string& name, const Elements& elements,
                            InferSettings* settings) {
  RETURN_IF_ERROR(CheckOne(name, elements));
  ASSIGN_OR_RETURN(const bool value, AsBool(name, elements[0]));
  settings->request->mutable_output()->set_skip_special_tokens(value);
  return absl::OkStatus();
}

absl::Status ApplyJson(const std::string& name, const Elements& elements, InferSettings* settings);

struct Row {
  const char* name;
  Setter set;
};

const std::vector<Row>& Settings() {
  using S = v1::SamplingParams;
  using T = v1::StopConditions;
  static constexpr char kOne[] = "a request has one answer; send it several times";
  static constexpr char kNoLogprobs[] = "log probabilities are not sent in this protocol";
  static const std::vector<Row> rows = {
      {"temperature", Float(&S::set_temperature, &S::has_temperature)},
      {"top_p", Float(&S::set_top_p, &S::has_top_p)},
      {"min_p", Float(&S::set_min_p, &S::has_min_p)},
      {"repetition_penalty", Float(&S::set_repetition_penalty, &S::has_repetition_penalty)},
      {"presence_penalty", Float(&S::set_presence_penalty, &S::has_presence_penalty)},
      {"frequency_penalty", Float(&S::set_frequency_penalty, &S::has_frequency_penalty)},
      {"top_k", SetTopK},
      {"random_seed", SetSeed},
      {"seed", SetSeed},
      {"max_tokens", Count(&T::set_max_tokens, &T::has_max_tokens)},
      {"min_tokens", Count(&T::set_min_tokens, &T::has_min_tokens)},
      {"min_length", Count(&T::set_min_tokens, &T::has_min_tokens)},
      {"stop_words", AddStops},
      {"stop", AddStops},
      {"stop_token_ids", AddStopIds},
      {"ignore_eos", SetIgnoreEos},
      {"include_stop_str_in_output", SetIncludeStop},
      {"skip_special_tokens", SetSkipSpecial},
      {"n", Only(uint64_t{1}, kOne)},
      {"best_of", Only(uint64_t{1}, kOne)},
      {"beam_width", Only(uint64_t{1}, kOne)},
      {"detokenize", Only(true, "the answer is text")},
      {"return_log_probs", Only(false, kNoLogprobs)},
      {"return_logprobs", Only(false, kNoLogprobs)},
      {"return_cumulative_logprob", Only(false, kNoLogprobs)},
      {"exclude_input_in_output", Only(true, "text_output never repeats the prompt")},
  };
  return rows;
}

// Names that are tensors and nothing else.
const std::vector<Row>& TensorsOnly() {
  static const std::vector<Row> rows = {
      {"text_input", SetPrompt},
      {"stream", Flag(&InferSettings::stream)},
      {"streaming", Flag(&InferSettings::stream)},
      {"return_finish_reason", Flag(&InferSettings::finish_reason)},
      {"return_num_input_tokens", Flag(&InferSettings::num_input_tokens)},
      {"return_num_output_tokens", Flag(&InferSettings::num_output_tokens)},
      {"sampling_parameters", ApplyJson},
  };
  return rows;
}

const Row* FindRow(const std::vector<Row>& rows, std::string_view name) {
  for (const Row& row : rows) {
    if (name == row.name) return &row;
  }
  return nullptr;
}

absl::StatusOr<Element> FromJson(const std::string& name, const nlohmann::json& value) {
  if (value.is_boolean()) return Element(value.get<bool>());
  if (value.is_number_unsigned()) return Element(value.get<uint64_t>());
  if (value.is_number_integer()) return Element(value.get<int64_t>());
  if (value.is_number_float()) return Element(value.get<double>());
  if (value.is_string()) return Element(value.get<std::string>());
  return InvalidField(name, "must be a number, a string, true, false, or a list of these");
}

absl::Status ApplyJson(const std::string& name, const Elements& elements, InferSettings* settings) {
  RETURN_IF_ERROR(CheckOne(name, elements));
  ASSIGN_OR_RETURN(const std::string text, AsText(name, elements[0]));
  if (text.empty()) return absl::OkStatus();
  const absl::StatusOr<nlohmann::json> parsed = ParseJson(text, name, kJsonLimits);
  if (!parsed.ok()) {
    return InvalidField(
        name, std::string(parsed.status().message().data(), parsed.status().message().size()));
  }
  if (!parsed->is_object()) return InvalidField(name, "must be a JSON object");
  for (const auto& [key, value] : parsed->items()) {
    const std::string path = name + "." + key;
    const Row* row = FindRow(Settings(), key);
    if (row == nullptr) return NotServed(path, "this server does not know the setting");
    if (value.is_null()) continue;
    Elements values;
    if (value.is_array()) {
      for (const nlohmann::json& each : value) {
        ASSIGN_OR_RETURN(Element element, FromJson(path, each));
        values.push_back(std::move(element));
      }
    } else {
      ASSIGN_OR_RETURN(Element element, FromJson(path, value));
      values.push_back(std::move(element));
    }
    RETURN_IF_ERROR(row->set(path, values, settings));
  }
  return absl::OkStatus();
}

constexpr InferInput kInputs[] = {
    {"text_input", "BYTES", false},
    {"stream", "BOOL", false},
    {"sampling_parameters", "BYTES", false},
    {"max_tokens", "INT32", false},
    {"min_tokens", "INT32", false},
    {"temperature", "FP32", false},
    {"top_k", "INT32", false},
    {"top_p", "FP32", false},
    {"min_p", "FP32", false},
    {"repetition_penalty", "FP32", false},
    {"presence_penalty", "FP32", false},
    {"frequency_penalty", "FP32", false},
    {"random_seed", "UINT64", false},
    {"stop_words", "BYTES", true},
    {"stop_token_ids", "INT32", true},
    {"ignore_eos", "BOOL", false},
    {"include_stop_str_in_output", "BOOL", false},
    {"skip_special_tokens", "BOOL", false},
    {"exclude_input_in_output", "BOOL", false},
    {"return_finish_reason", "BOOL", false},
    {"return_num_input_tokens", "BOOL", false},
    {"return_num_output_tokens", "BOOL", false},
};

}  // namespace

std::span<const InferInput> InferInputs() { return kInputs; }

absl::Status ApplyTensor(const NamedElements& tensor, InferSettings* settings) {
  const Row* row = FindRow(TensorsOnly(), tensor.name);
  if (row == nullptr) row = FindRow(Settings(), tensor.name);
  if (row != nullptr) return row->set(tensor.name, tensor.elements, settings);
  return NotServed(tensor.name, "the model has no such input; ModelMetadata lists them");
}

}  // namespace quire
