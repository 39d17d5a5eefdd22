// PushdownGuide: the guides of a grammar in the form of a Pushdown.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/grammar/guide_vocabulary.h"
#include "engine/grammar/mask_store.h"
#include "engine/grammar/pushdown.h"
#include "engine/grammar/token_guide.h"

namespace quire {

// Made by std::make_shared only: guides hold a reference.
class PushdownGuide : public CompiledGuide, public std::enable_shared_from_this<PushdownGuide> {
 public:
  PushdownGuide(Pushdown table, std::shared_ptr<const GuideVocabulary> vocabulary,
                size_t max_mask_bytes);

  std::unique_ptr<TokenGuide> Start() const override;
  size_t bytes() const override;

 private:
  friend class RowGuide;
  const Pushdown table_;
  const std::shared_ptr<const GuideVocabulary> vocabulary_;
  mutable MaskStore masks_;
};

}  // namespace quire
