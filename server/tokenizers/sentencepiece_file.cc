// Says in the words of tokenizer.json how SentencePiece reads text with its model.
#include "server/tokenizers/sentencepiece_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/file_error.h"
#include "engine/base/status_macros.h"
#include "field/sentencepiece_model.pb.h"
#include "server/text/file/json_node.h"
#include "server/text/unicode/unicode.h"
#include "server/tokenizers/text_frame.h"

namespace quire {
namespace {

using nlohmann::json;
using sentencepiece::ModelProto;
using sentencepiece::NormalizerSpec;
using sentencepiece::TrainerSpec;
using Piece = ModelProto::SentencePiece;

constexpr char kSpace[] = "\xE2\x96\x81";  // U+2581
constexpr int kMaxPieces = 4 << 20;        // ids are at most 4 Mi

absl::Status CheckPiece(const Piece& piece, int id, bool is_bpe) {
  // Text with it would be merged to it and cut again.
  if (piece.type() == Piece::UNUSED && is_bpe) {
    return absl::InvalidArgumentError(
        absl::StrCat("piece ", id, ": is unused, which is not supported for BPE"));
  }
  if (piece.piece().empty() || FindInvalidUtf8(piece.piece()) != std::string_view::npos) {
    return absl::InvalidArgumentError(absl::StrCat("piece ", id, ": is empty or not UTF-8"));
  }
  if (!(piece.score() > -1e30f && piece.score() < 1e30f)) {
    return absl::InvalidArgumentError(absl::StrCat("piece ", id, ": its score is not a number"));
  }
  return absl::OkStatus();
}

absl::Status Check(const ModelProto& model) {
  const TrainerSpec& trainer = model.trainer_spec();
  if (trainer.model_type() != TrainerSpec::BPE && trainer.model_type() != TrainerSpec::UNIGRAM) {
    return absl::InvalidArgumentError(
        "trainer_spec.model_type: only BPE and UNIGRAM are supported");
  }
  if (trainer.treat_whitespace_as_suffix()) {
    return absl::InvalidArgumentError(
        "trainer_spec.treat_whitespace_as_suffix: true is not supported");
  }
  if (!model.normalizer_spec().escape_whitespaces()) {
    return absl::InvalidArgumentError("normalizer_spec.escape_whitespaces: false is not supported");
  }
  if (model.pieces_size() == 0 || model.pieces_size() > kMaxPieces) {
    return absl::InvalidArgumentError(absl::StrCat("has ", model.pieces_size(), " pieces"));
  }
  for (int id = 0; id < model.pieces_size(); ++id) {
    RETURN_IF_ERROR(CheckPiece(model.pieces(id), id, trainer.model_type() == TrainerSpec::BPE));
  }
  const int unknown = trainer.unk_id();
  if (unknown < 0 || unknown >= model.pieces_size()) {
    return absl::InvalidArgumentError(absl::StrCat("trainer_spec.unk_id: no piece ", unknown));
  }
  return absl::OkStatus();
}

// SentencePiece merges the neighbours whose piece has the largest score, whatever its parts; so all
// merges to one piece share a rank. User-defined symbols are cut out before, so no merge makes one.
void AddMerges(const ModelProto& model, ModelSpec* spec) {
  std::unordered_map<std::string_view, int> id_of;
  std::vector<int> order;
  for (int id = 0; id < model.pieces_size(); ++id) {
    const Piece& piece = model.pieces(id);
    if (piece.type() != Piece::NORMAL) continue;
    if (id_of.emplace(piece.piece(), id).second) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(), [&model](int a, int b) {
    return model.pieces(a).score() > model.pieces(b).score();
  });
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const std::string_view piece = model.pieces(order[rank]).piece();
    for (size_t at = CodePointEnd(piece, 0); at < piece.size(); at = CodePointEnd(piece, at)) {
      const std::string_view left = piece.substr(0, at), right = piece.substr(at);
      if (!id_of.contains(left) || !id_of.contains(right)) continue;
      spec->merges.push_back({std::string(left), std::string(right), static_cast<uint32_t>(rank)});
    }
  }
}

ModelSpec ModelOf(const ModelProto& model) {
  const TrainerSpec& trainer = model.trainer_spec();
  ModelSpec spec;
  spec.fuse_unknown = true;
  spec.byte_fallback = trainer.byte_fallback();
  spec.unknown = model.pieces(trainer.unk_id()).piece();
  for (int id = 0; id < model.pieces_size(); ++id) {
    spec.vocabulary.emplace_back(model.pieces(id).piece(), id);
  }
  if (trainer.model_type() == TrainerSpec::BPE) {
    AddMerges(model, &spec);
    return spec;
  }
  spec.kind = ModelSpec::Kind::kUnigram;
  spec.single_precision = true;
  for (const Piece& piece : model.pieces()) {
    const bool in_text = piece.type() == Piece::NORMAL || piece.type() == Piece::USER_DEFINED;
    spec.scores.push_back(in_text ? std::optional<double>(piece.score()) : std::nullopt);
  }
  return spec;
}

json Replace(json pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", std::move(pattern)}, {"content", content}};
}

// `normalizer`, `pre_tokenizer` and `decoder`. With `only_first`, of the texts between added tokens
// only the first gets the space.
void AddTextParts(const NormalizerSpec& spec, bool only_first, json* parts) {
  json steps = json::array(), decoders = json::array();
  if (!spec.precompiled_charsmap().empty()) {
    steps.push_back({{"type", "Precompiled"},
                     {"precompiled_charsmap", absl::Base64Escape(spec.precompiled_charsmap())}});
  }
  if (spec.remove_extra_whitespaces()) {
    steps.push_back({{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}});
    steps.push_back(Replace({{"Regex", " {2,}"}}, " "));
  }
  if (only_first) {
    (*parts)["pre_tokenizer"] = {{"type", "Metaspace"},
                                 {"replacement", kSpace},
                                 {"prepend_scheme", "first"},
                                 {"split", false}};
  } else {
    if (spec.add_dummy_prefix()) steps.push_back({{"type", "Prepend"}, {"prepend", kSpace}});
    steps.push_back(Replace({{"String", " "}}, kSpace));
  }
  (*parts)["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::move(steps)}};
  decoders.push_back(Replace({{"String", kSpace}}, " "));
  decoders.push_back({{"type", "ByteFallback"}});
  decoders.push_back({{"type", "Fuse"}});
  if (spec.add_dummy_prefix()) {
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  (*parts)["decoder"] = {{"type", "Sequence"}, {"decoders", std::move(decoders)}};
}

// Control and user-defined pieces, and the tokens that tokenizer_config.json adds to them. With
// `finds_symbols`, user-defined pieces are found in the normalized text, as SentencePiece does.
absl::Status AddTokens(const ModelProto& model, const JsonNode& config, bool finds_symbols,
                       TokenizerFile* file) {
  json tokens = json::array();
  const JsonNode empty{json::object(), ""};
  const JsonNode added =
      config.Has("added_tokens_decoder") ? config.At("added_tokens_decoder") : empty;
  if (!added.value.is_object()) return Refuse(added, "is not an object");
  for (int id = 0; id < model.pieces_size(); ++id) {
    const Piece& piece = model.pieces(id);
    if (added.value.contains(absl::StrCat(id))) continue;
    const bool unknown = piece.type() == Piece::UNKNOWN;
    if (!unknown && piece.type() != Piece::CONTROL && piece.type() != Piece::USER_DEFINED) continue;
    if (piece.type() == Piece::USER_DEFINED && finds_symbols) {
      file->symbols.push_back({.id = id, .content = piece.piece()});
      continue;
    }
    tokens.push_back({{"id", id},
                      {"content", piece.piece()},
                      {"normalized", false},
                      {"special", piece.type() != Piece::USER_DEFINED}});
  }
  for (const auto& [id, value] : added.value.items()) {
    const JsonNode token{value, absl::StrCat(added.path, ".", id.substr(0, 20))};
    const bool is_id =
        !id.empty() && id.size() < 9 &&
        std::all_of(id.begin(), id.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!is_id || !value.is_object()) return Refuse(token, "is not a token under its id");
    tokens.push_back(value);
    tokens.back()["id"] = std::stoi(id);
    tokens.back().erase("__type");
  }
  file->parts["added_tokens"] = std::move(tokens);
  return absl::OkStatus();
}

absl::Status AddFrame(const ModelProto& model, const JsonNode& config, json* parts) {
  ASSIGN_OR_RETURN(const bool add_bos, ReadBool(config, "add_bos_token", true));
  ASSIGN_OR_RETURN(const bool add_eos, ReadBool(config, "add_eos_token", false));
  const auto token = [&model](bool is_added, int id) -> std::optional<FrameToken> {
    if (!is_added || id < 0 || id >= model.pieces_size()) return std::nullopt;
    return FrameToken{model.pieces(id).piece(), id};
  };
  (*parts)["post_processor"] = FrameProcessor(token(add_bos, model.trainer_spec().bos_id()),
                                              token(add_eos, model.trainer_spec().eos_id()));
  return absl::OkStatus();
}

absl::StatusOr<TokenizerFile> Convert(const ModelProto& model, const json& config) {
  RETURN_IF_ERROR(Check(model));
  const JsonNode root{config, "tokenizer_config.json"};
  ASSIGN_OR_RETURN(const bool legacy, ReadBool(root, "legacy", true));
  TokenizerFile file = {.model = ModelOf(model), .parts = json::object()};
  const bool only_first = !legacy && model.normalizer_spec().add_dummy_prefix();
  AddTextParts(model.normalizer_spec(), only_first, &file.parts);
  const bool is_bpe = model.trainer_spec().model_type() == TrainerSpec::BPE;
  RETURN_IF_ERROR(AddTokens(model, root, is_bpe && !only_first, &file));
  RETURN_IF_ERROR(AddFrame(model, root, &file.parts));
  return file;
}

}  // namespace

absl::StatusOr<TokenizerFile> ReadSentencePieceFile(const std::string& path, const json& config) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in) return FileError(path, errno);
  ModelProto model;
  if (!model.ParseFromIstream(&in)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a SentencePiece model"));
  }
  absl::StatusOr<TokenizerFile> file = Convert(model, config);
  if (!file.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", file.status().message()));
  }
  return file;
}

}  // namespace quire
