// The reasons for which a run is invalid or partial.
#include "clients/load/figures/verdict.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace quire::load {
namespace {

std::string Capitalized(std::string sentence) {
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] += 'A' - 'a';
  if (!sentence.empty() && sentence.back() != '.') sentence += '.';
  return sentence;
}

std::string EndedEarly(const RunRecord& run, const Summary& summary) {
  const auto never_sent = std::count_if(
      run.requests.begin(), run.requests.end(),
      [](const RequestRecord& r) { return Counts(r) && r.outcome == Outcome::kPending; });
  std::string sentence = absl::StrCat("The run ended early (", Name(run.end), ")");
  if (!run.end_reason.empty()) absl::StrAppend(&sentence, ": ", run.end_reason);
  while (sentence.back() == '.') sentence.pop_back();
  return absl::StrCat(sentence, ". Requests planned: ", summary.planned,
                      ", completed: ", summary.completed, ", cut off: ", summary.incomplete,
                      ", never sent: ", never_sent, ". Tokens received: ", summary.received_tokens,
                      ", of completed requests: ", summary.output_tokens, ".");
}

}  // namespace

std::string Verdict::Word() const {
  if (good()) return "valid";
  return valid ? "PARTIAL" : partial ? "INVALID and PARTIAL" : "INVALID";
}

Verdict Judge(const RunRecord& run, const Summary& summary) {
  Verdict v;
  if (!run.health.invalid_because.empty()) {
    v.reasons.push_back(Capitalized(run.health.invalid_because));
  }
  if (summary.broken_sequences > 0) {
    v.reasons.push_back(
        absl::StrCat("Streams with lost or repeated tokens: ", summary.broken_sequences, "."));
  }
  if (summary.completed == 0) v.reasons.push_back("No request completed: there are no latencies.");
  v.valid = v.reasons.empty();
  v.partial = run.end != RunEnd::kCompleted;
  if (v.partial) v.reasons.push_back(EndedEarly(run, summary));
  if (summary.failed > 0) {
    v.notes.push_back(absl::StrCat("Requests that failed: ", summary.failed, " of ",
                                   summary.planned, ". Latencies are of completed requests."));
  }
  if (summary.cancelled > 0) {
    v.notes.push_back(absl::StrCat("Requests cancelled, as planned: ", summary.cancelled, "."));
  }
  return v;
}

}  // namespace quire::load
