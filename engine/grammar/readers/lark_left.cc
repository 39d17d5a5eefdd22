// A rule a of the alternatives a x | a y | z has the texts z (x | y)*.
#include "engine/grammar/readers/lark_left.h"

#include <iterator>
#include <utility>

#include "engine/grammar/rules/grammar.h"

namespace quire {
namespace {

using Kind = LarkExpr::Kind;

LarkExpr Join(Kind kind, size_t at, std::vector<LarkExpr> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  LarkExpr joined{.kind = kind, .at = at};
  joined.parts = std::move(parts);
  return joined;
}

bool IsNever(const LarkExpr& expr) { return expr.kind == Kind::kChoice && expr.parts.empty(); }
bool IsEmpty(const LarkExpr& expr) { return expr.kind == Kind::kSequence && expr.parts.empty(); }

// The first part is split, and what follows stands behind each piece.
LeftSplit SplitSequence(LarkExpr sequence, std::string_view name) {
  if (sequence.parts.empty()) return {.tails = {}, .rest = std::move(sequence)};
  LeftSplit first = SplitLeft(std::move(sequence.parts[0]), name);
  if (first.tails.empty()) {
    sequence.parts[0] = std::move(first.rest);
    return {.tails = {}, .rest = std::move(sequence)};
  }
  LeftSplit out;
  const auto with_first = [&sequence](LarkExpr part) {
    std::vector<LarkExpr> parts;
    if (!IsEmpty(part)) parts.push_back(std::move(part));
    parts.insert(parts.end(), sequence.parts.begin() + 1, sequence.parts.end());
    return Join(Kind::kSequence, sequence.at, std::move(parts));
  };
  for (LarkExpr& tail : first.tails) out.tails.push_back(with_first(std::move(tail)));
  out.rest = IsNever(first.rest) ? std::move(first.rest) : with_first(std::move(first.rest));
  return out;
}

LeftSplit SplitChoice(LarkExpr choice, std::string_view name) {
  LeftSplit out;
  std::vector<LarkExpr> rests;
  for (LarkExpr& part : choice.parts) {
    LeftSplit split = SplitLeft(std::move(part), name);
    std::move(split.tails.begin(), split.tails.end(), std::back_inserter(out.tails));
    if (!IsNever(split.rest)) rests.push_back(std::move(split.rest));
  }
  out.rest = Join(Kind::kChoice, choice.at, std::move(rests));
  return out;
}

}  // namespace

LeftSplit SplitLeft(LarkExpr body, std::string_view name) {
  const size_t at = body.at;
  if (body.kind == Kind::kName && body.text == name) {
    LeftSplit out{.tails = std::vector<LarkExpr>(1), .rest = {.kind = Kind::kChoice, .at = at}};
    return out;
  }
  if (body.kind == Kind::kSequence) return SplitSequence(std::move(body), name);
  if (body.kind == Kind::kChoice) return SplitChoice(std::move(body), name);
  const bool optional = body.kind == Kind::kRepeat && body.min == 0 && body.max == 1;
  if (!optional) return {.tails = {}, .rest = std::move(body)};
  LeftSplit out = SplitLeft(std::move(body.parts[0]), name);
  if (IsNever(out.rest)) {
    out.rest = LarkExpr{.kind = Kind::kSequence, .at = at};
  } else {
    body.parts[0] = std::move(out.rest);
    out.rest = std::move(body);
  }
  return out;
}

LarkExpr WithoutLeftRecursion(LarkExpr body, std::string_view name) {
  const size_t at = body.at;
  LeftSplit split = SplitLeft(std::move(body), name);
  if (split.tails.empty()) return std::move(split.rest);
  LarkExpr more{.kind = Kind::kRepeat, .at = at};
  more.max = Grammar::kUnbounded;
  more.parts.push_back(Join(Kind::kChoice, at, std::move(split.tails)));
  std::vector<LarkExpr> parts;
  parts.push_back(std::move(split.rest));
  parts.push_back(std::move(more));
  return Join(Kind::kSequence, at, std::move(parts));
}

}  // namespace quire
