// Conversations: the sessions of a simulated world's clients. They take turns, fork, cut, move
// between tiers, are exported and closed, one after the other for each session, and a model keeps
// the tokens that each should have. Every answer of the engine is compared with it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/simulation/agenda.h"

namespace quire {

struct Conversation {
  TenantId tenant = 0;
  SessionName name;
  bool exists = false;
  bool busy = false;  // an operation or a turn is under way
  std::vector<int32_t> tokens;
};

class Conversations {
 public:
  struct Rules {
    bool may_expire = false;     // leases are short
    bool may_be_refused = true;  // by limits on sessions and tokens
    int32_t vocab_size = 0;
    int32_t max_model_len = 0;
  };

  // `trace` hears of every operation; all outlive it.
  Conversations(Agenda& agenda, Dice& dice, const Rules& rules,
                std::function<void(const std::string&)> trace);

  void SetEngine(Engine* engine) { engine_ = engine; }
  // One that nothing is under way for; null: there is none.
  Conversation* AnyIdle();
  // Begins one operation.
  void Operate(Conversation& talk);
  // A turn that appends `added` may have ended: the session has `before`, or that with all of
  // `appended`. Asks which; the conversation stays busy until then.
  void Resolve(Conversation& talk, std::vector<int32_t> appended);
  void UnpinAll();
  void Close(Conversation& talk);
  bool AllIdle() const;
  std::deque<Conversation>& all() { return talks_; }
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  using Answered = std::function<void(const SessionAnswer&)>;

  void Run(Conversation& talk, const char* what, SessionOperation::Action action,
           Answered answered);
  void Change(Conversation& talk);
  void Move(Conversation& talk);
  void Transfer(Conversation& talk);
  void Fork(Conversation& talk);
  void Truncate(Conversation& talk);
  void Import(Conversation& talk);
  void Check(Conversation& talk, const SessionAnswer& answer);
  bool Missing(Conversation& talk, const absl::Status& status);

  Agenda& agenda_;
  Dice& dice_;
  const Rules rules_;
  const std::function<void(const std::string&)> trace_;
  Engine* engine_ = nullptr;
  std::deque<Conversation> talks_;
  std::map<std::string, int64_t> counts_;
};

}  // namespace quire
