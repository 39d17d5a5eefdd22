// Reads the normalizers of a tokenizer and runs them.
#include "server/text/normalize/normalizer.h"

#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "server/text/normalize/precompiled.h"
#include "server/text/normalize/simple_normalizers.h"
#include "server/text/normalize/unicode_form.h"
#include "server/text/pattern/stop_mark.h"

namespace quire {
namespace {

using MadeNormalizer = absl::StatusOr<std::unique_ptr<const Normalizer>>;

MadeNormalizer ReadPrecompiled(const JsonNode& node) {
  RETURN_IF_ERROR(CheckKeys(node, {"type", "precompiled_charsmap"}));
  ASSIGN_OR_RETURN(const std::string encoded, ReadString(node, "precompiled_charsmap"));
  const absl::StatusOr<std::string> charsmap = DecodeBase64(encoded);
  if (!charsmap.ok()) {
    return Refuse(node.At("precompiled_charsmap"), std::string(charsmap.status().message()));
  }
  MadeNormalizer made = MakePrecompiled(*charsmap);
  if (!made.ok()) return Refuse(node, std::string(made.status().message()));
  return made;
}

MadeNormalizer ReadStep(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::string type, ReadString(node, "type"));
  if (type == "Prepend") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "prepend"}));
    ASSIGN_OR_RETURN(std::string prefix, ReadString(node, "prepend"));
    return MakePrepend(std::move(prefix));
  }
  if (type == "Replace") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "pattern", "content"}));
    ASSIGN_OR_RETURN(auto pattern, ReadPattern(node));
    ASSIGN_OR_RETURN(std::string content, ReadString(node, "content"));
    return MakeReplace(std::move(pattern), std::move(content));
  }
  if (type == "Strip") {
    RETURN_IF_ERROR(CheckKeys(node, {"type", "strip_left", "strip_right"}));
    ASSIGN_OR_RETURN(const bool left, ReadBool(node, "strip_left", true));
    ASSIGN_OR_RETURN(const bool right, ReadBool(node, "strip_right", true));
    return MakeStrip(left, right);
  }
  if (type == "Precompiled") return ReadPrecompiled(node);
  if (type == "Lowercase" || type == "StripAccents" || type == "ByteLevel") {
    RETURN_IF_ERROR(CheckKeys(node, {"type"}));
    if (type == "ByteLevel") return MakeByteAlphabet();
    return type == "Lowercase" ? MakeLowercase() : MakeStripAccents();
  }
  for (const UnicodeForm::Name& form : UnicodeForm::kNames) {
    if (type != form.name) continue;
    RETURN_IF_ERROR(CheckKeys(node, {"type"}));
    return std::make_unique<UnicodeForm>(form.kind);
  }
  return Refuse(node.At("type"));
}

}  // namespace

absl::StatusOr<NormalizerChain> NormalizerChain::Read(const JsonNode& node) {
  ASSIGN_OR_RETURN(const std::vector<JsonNode> steps, FlattenSequence(node, "normalizers"));
  NormalizerChain chain;
  for (const JsonNode& step : steps) {
    ASSIGN_OR_RETURN(auto made, ReadStep(step));
    chain.steps_.push_back(std::move(made));
  }
  return chain;
}

absl::Status NormalizerChain::Run(bool tracked, Passage* passage, NormalizedText* work) const {
  bool copied = false;
  for (const auto& step : steps_) {
    if (!step->MayChange(copied ? work->text() : passage->text)) continue;
    if (!copied) work->Reset(*passage, tracked);
    copied = true;
    RETURN_IF_ERROR(StopMark::CheckThread());
    RETURN_IF_ERROR(step->Apply(work));
  }
  if (copied) *passage = work->passage();
  return absl::OkStatus();
}

}  // namespace quire
