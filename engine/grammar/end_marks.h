// EndMarks: which tokens write the end marker of reasoning, from each place in it. Immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/guide_vocabulary.h"

namespace quire {

// The markers of one model's reasoning.
struct ReasoningMarks {
  std::vector<int32_t> begin;  // the tokens that write the begin marker
  std::vector<int32_t> end;    // the tokens that write the end marker
  std::string end_text;        // its text, which other tokens may write too
};

class EndMarks {
 public:
  using Mask = std::vector<uint32_t>;  // as FillMask writes it

  // None of the parts of `marks` is empty. Costs time for the text of all tokens, once for each
  // byte of the end marker.
  EndMarks(ReasoningMarks marks, std::shared_ptr<const GuideVocabulary> vocabulary);

  const ReasoningMarks& marks() const { return marks_; }
  const GuideVocabulary& vocabulary() const { return *vocabulary_; }

  // A place is the number of the marker's bytes that the text ends with. Tokens with a text...
  const Mask& within(size_t place) const { return masks_[place].within; }  // do not complete it
  const Mask& ends(size_t place) const { return masks_[place].ends; }      // end with its last byte
  const Mask& beyond(size_t place) const { return masks_[place].beyond; }  // go on after it
  // The place after the token; nullopt: the marker is complete.
  std::optional<size_t> After(size_t place, int32_t token) const;
  size_t bytes() const { return masks_.size() * 3 * vocabulary_->mask_words() * sizeof(uint32_t); }

 private:
  struct Masks {
    Mask within, ends, beyond;
  };
  // Bytes of `text` up to the end of the marker, if it is completed; else `place` moves on.
  std::optional<size_t> Complete(std::string_view text, size_t* place) const;

  const ReasoningMarks marks_;
  const std::shared_ptr<const GuideVocabulary> vocabulary_;
  std::vector<size_t> next_;  // the place after each byte, by place and byte
  std::vector<Masks> masks_;  // by place
};

}  // namespace quire
