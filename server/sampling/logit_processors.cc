// Every entry becomes the lists of a SamplingParams, which checks them as it checks a request's.
#include "server/sampling/logit_processors.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "server/text/file/json_node.h"
#include "server/text/tokenizer.h"

namespace quire {
namespace {

constexpr size_t kMaxNameBytes = 128;

absl::Status CheckName(const std::string& name) {
  const auto allowed = [](char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == ':' || c == '-';
  };
  if (!name.empty() && name.size() <= kMaxNameBytes &&
      std::all_of(name.begin(), name.end(), allowed)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("the name '", name.substr(0, kMaxNameBytes),
                                                 "' must be 1 to ", kMaxNameBytes,
                                                 " bytes of [A-Za-z0-9._:-]"));
}

absl::Status Wrong(const std::string& reason) { return absl::InvalidArgumentError(reason); }

class ProcessorReader {
 public:
  ProcessorReader(const Tokenizer* tokenizer, int32_t vocab_size)
      : tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  absl::StatusOr<SamplingParams> Read(const JsonNode& node) const {
    RETURN_IF_ERROR(
        CheckKeys(node, {"logit_bias", "banned_token_ids", "bad_words", "allowed_token_ids"}));
    SamplingParams out;
    out.max_tokens = 1;
    RETURN_IF_ERROR(ReadBias(node, &out.logit_bias));
    RETURN_IF_ERROR(ReadIds(node, "allowed_token_ids", &out.allowed_token_ids));
    std::vector<int32_t> banned;
    RETURN_IF_ERROR(ReadIds(node, "banned_token_ids", &banned));
    for (const int32_t id : banned) out.bad_words.push_back(~id);
    RETURN_IF_ERROR(ReadWords(node, &out.bad_words));
    const absl::Status valid = out.Validate(vocab_size_);
    if (!valid.ok()) return Refuse(node, std::string(valid.message()));
    return out;
  }

 private:
  // [{"token": 5, "bias": -1.5}, {"text": " so", "bias": 2}]
  absl::Status ReadBias(const JsonNode& node, std::vector<LogitBias>* out) const {
    if (!node.Has("logit_bias")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const JsonNode list, ReadList(node, "logit_bias"));
    std::map<int32_t, float> biases;
    for (size_t i = 0; i < list.value.size(); ++i) {
      const JsonNode entry = list.At(i);
      RETURN_IF_ERROR(CheckKeys(entry, {"token", "text", "bias"}));
      if (entry.Has("token") == entry.Has("text")) return Refuse(entry, "needs a token or a text");
      ASSIGN_OR_RETURN(const int32_t token, TokenOf(entry));
      if (!entry.Has("bias") || !entry.At("bias").value.is_number()) {
        return Refuse(entry, "bias must be a number");
      }
      if (!biases.emplace(token, entry.At("bias").value.get<float>()).second) {
        return Refuse(entry, absl::StrCat("token ", token, " has a bias already"));
      }
    }
    for (const auto& [token, bias] : biases) out->push_back({token, bias});
    return absl::OkStatus();
  }

  absl::StatusOr<int32_t> TokenOf(const JsonNode& entry) const {
    if (entry.Has("token")) return ReadId(entry.At("token"));
    std::vector<int32_t> ids;
    RETURN_IF_ERROR(Encode(entry.At("text"), "", &ids));
    if (ids.size() == 1) return ids[0];
    return Refuse(entry.At("text"), absl::StrCat("is ", ids.size(), " tokens (",
                                                 absl::StrJoin(ids, ", "), "), not one"));
  }

  static absl::Status ReadIds(const JsonNode& node, const char* key, std::vector<int32_t>* out) {
    if (!node.Has(key)) return absl::OkStatus();
    ASSIGN_OR_RETURN(const JsonNode list, ReadList(node, key));
    for (size_t i = 0; i < list.value.size(); ++i) {
      ASSIGN_OR_RETURN(const int32_t id, ReadId(list.At(i)));
      out->push_back(id);
    }
    return absl::OkStatus();
  }

  // Texts, each as it is and with a space before it, and lists of ids.
  absl::Status ReadWords(const JsonNode& node, std::vector<int32_t>* out) const {
    if (!node.Has("bad_words")) return absl::OkStatus();
    ASSIGN_OR_RETURN(const JsonNode list, ReadList(node, "bad_words"));
    std::set<std::vector<int32_t>> words;
    for (size_t i = 0; i < list.value.size(); ++i) {
      const JsonNode entry = list.At(i);
      std::vector<int32_t> word;
      if (entry.value.is_array()) {
        for (size_t k = 0; k < entry.value.size(); ++k) {
          ASSIGN_OR_RETURN(const int32_t id, ReadId(entry.At(k)));
          word.push_back(id);
        }
        if (word.empty()) return Refuse(entry, "is empty");
        words.insert(std::move(word));
        continue;
      }
      for (const char* before : {"", " "}) {
        word.clear();
        RETURN_IF_ERROR(Encode(entry, before, &word));
        words.insert(word);
      }
    }
    for (const std::vector<int32_t>& word : words) {
      out->insert(out->end(), word.begin(), word.end());
      out->back() = ~out->back();
    }
    return absl::OkStatus();
  }

  absl::Status Encode(const JsonNode& text, const char* before, std::vector<int32_t>* ids) const {
    if (!text.value.is_string() || text.value.get_ref<const std::string&>().empty()) {
      return Refuse(text, "must be a text that is not empty");
    }
    if (tokenizer_ == nullptr) {
      return Refuse(text, "this server has no tokenizer for texts (--skip-tokenizer-init)");
    }
    const absl::Status encoded =
        tokenizer_->Encode(absl::StrCat(before, text.value.get<std::string>()),
                           /*add_special=*/false, /*parse_special=*/false, ids);
    if (!encoded.ok()) return Refuse(text, std::string(encoded.message()));
    return ids->empty() ? Refuse(text, "yields no token") : absl::OkStatus();
  }

  const Tokenizer* const tokenizer_;
  const int32_t vocab_size_;
};

// Both by ascending token.
void AddBiases(const std::vector<LogitBias>& more, std::vector<LogitBias>* out) {
  std::map<int32_t, float> sums;
  for (const auto* list : {&std::as_const(*out), &more}) {
    for (const LogitBias& each : *list) sums[each.token] += each.bias;
  }
  out->clear();
  for (const auto& [token, bias] : sums) out->push_back({token, bias});
}

absl::Status RestrictTo(const std::vector<int32_t>& allowed, std::vector<int32_t>* out) {
  if (allowed.empty()) return absl::OkStatus();
  if (out->empty()) {
    *out = allowed;
    return absl::OkStatus();
  }
  std::erase_if(*out, [&](int32_t id) {
    return std::find(allowed.begin(), allowed.end(), id) == allowed.end();
  });
  if (!out->empty()) return absl::OkStatus();
  return Wrong("and allowed_token_ids together allow no token");
}

}  // namespace

absl::StatusOr<LogitProcessors> LogitProcessors::Load(const std::string& path,
                                                      const Tokenizer* tokenizer,
                                                      int32_t vocab_size) {
  LogitProcessors out;
  if (path.empty()) return out;
  ASSIGN_OR_RETURN(const nlohmann::json file, ReadJsonFile(path));
  const ProcessorReader reader(tokenizer, vocab_size);
  const auto in_file = [&path](const absl::Status& status) {
    return absl::InvalidArgumentError(
        absl::StrCat("--logit-processors: ", path, ": ", std::string(status.message())));
  };
  if (!file.is_object()) return in_file(absl::InvalidArgumentError("must be an object"));
  for (const auto& [name, value] : file.items()) {
    if (const absl::Status named = CheckName(name); !named.ok()) return in_file(named);
    absl::StatusOr<SamplingParams> read = reader.Read({value, name});
    if (!read.ok()) return in_file(read.status());
    out.processors_.emplace(name, *std::move(read));
  }
  return out;
}

std::vector<std::string> LogitProcessors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, lists] : processors_) names.push_back(name);
  return names;
}

absl::Status LogitProcessors::AddTo(const std::vector<std::string>& names,
                                    SamplingParams* out) const {
  if (names.size() > kMaxNames) {
    return Wrong(absl::StrCat("has ", names.size(), " names; at most ", kMaxNames, " are allowed"));
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::find(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(i), names[i]) !=
        names.begin() + static_cast<std::ptrdiff_t>(i)) {
      return Wrong(absl::StrCat("names '", names[i], "' twice"));
    }
    const auto at = processors_.find(names[i]);
    if (at == processors_.end()) {
      return Wrong(absl::StrCat(
          "this server has none of the name '", names[i], "'; it has ",
          processors_.empty() ? "none (--logit-processors)" : absl::StrJoin(this->names(), ", ")));
    }
    AddBiases(at->second.logit_bias, &out->logit_bias);
    RETURN_IF_ERROR(RestrictTo(at->second.allowed_token_ids, &out->allowed_token_ids));
    out->bad_words.insert(out->bad_words.end(), at->second.bad_words.begin(),
                          at->second.bad_words.end());
  }
  return absl::OkStatus();
}

}  // namespace quire
