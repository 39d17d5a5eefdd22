// TtftModel: predicts the time to first token from the steps of late. A step takes a time of its
// own and a time for each prompt token; both are measured by least squares over recent steps. The
// prediction counts the tokens that are computed before the request's own under fair sharing, and
// the wait for a row where rows are short. One thread, or a lock around it; no clock.
#pragma once

#include <cstdint>
#include <optional>

namespace quire {

// The state of the server as a request finds it.
struct TtftSituation {
  int64_t prompt_tokens = 0;  // of the request
  // Ahead of it, of its own tenant.
  int64_t own_tokens = 0;           // that wait, or are left of prompts that have begun
  int64_t own_waiting = 0;          // requests
  double own_begun_per_second = 0;  // requests that got a row of late; 0: none, or not known
  // Of other tenants, and the part of the tokens that its tenant gets while they wait.
  int64_t other_tokens = 0;
  double share = 1;
  int32_t step_tokens = 1;  // that a step can give to prompts
  int32_t free_rows = 0;
  bool waits_for_row = false;  // no row or block is free, and its tenant has its part of them
};

class TtftModel {
 public:
  // Steps with prompt tokens that are measured before anything is predicted.
  static constexpr int32_t kMinSteps = 8;

  // A step took `seconds`, and computed this many tokens of prompts.
  void AddStep(int64_t prompt_tokens, double seconds);
  // Seconds; nullopt: not enough was measured.
  std::optional<double> Predict(const TtftSituation& situation) const;

 private:
  struct Line {
    double step_seconds = 0;
    double token_seconds = 0;
  };
  Line Fit() const;

  int64_t prompt_steps_ = 0;
  // Sums over steps, each weighted by its age: 1, prompt tokens, seconds, and their products.
  double n_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

}  // namespace quire
