// Each operation makes its conversation busy until the answer has come back to the world's thread.
#include "tests/simulation/conversations.h"

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace quire {
namespace {

constexpr int64_t kAgainNs = 20'000'000;
constexpr int64_t kAnswerNs = 20'000;       // on its way back
constexpr int64_t kTransferNs = 5'000'000;  // of an export, an import or a snapshot, at most

bool IsLimit(const absl::Status& status) {
  return status.code() == absl::StatusCode::kResourceExhausted;
}

}  // namespace

Conversations::Conversations(Agenda& agenda, Dice& dice, const Rules& rules,
                             std::function<void(const std::string&)> trace)
    : agenda_(agenda), dice_(dice), rules_(rules), trace_(std::move(trace)) {
  for (const TenantId tenant : {0, 1}) {
    for (const char* name : {"a", "b", "c", "d"}) talks_.push_back({tenant, name});
  }
}

Conversation* Conversations::AnyIdle() {
  Conversation& talk = talks_[static_cast<size_t>(dice_.Between(0, 7))];
  return talk.busy ? nullptr : &talk;
}

bool Conversations::AllIdle() const {
  for (const Conversation& talk : talks_) {
    if (talk.busy) return false;
  }
  return true;
}

void Conversations::Run(Conversation& talk, const char* what, SessionOperation::Action action,
                        Answered answered) {
  talk.busy = true;
  ++counts_[what];
  trace_(std::string(what) + " " + std::to_string(talk.tenant) + "/" + talk.name);
  engine_->Run({.tenant = talk.tenant, .name = talk.name, .action = std::move(action)},
               [this, &talk, answered = std::move(answered)](SessionAnswer answer) {
                 agenda_.In(kAnswerNs, [&talk, answered, answer = std::move(answer)] {
                   talk.busy = false;
                   answered(answer);
                 });
               });
}

// True if the session is not there. That is a failure unless the model agrees or its lease was
// short.
bool Conversations::Missing(Conversation& talk, const absl::Status& status) {
  if (status.code() != absl::StatusCode::kNotFound) return false;
  EXPECT_TRUE(!talk.exists || rules_.may_expire) << "lost session " << talk.name;
  talk.exists = false;
  talk.tokens.clear();
  return true;
}

void Conversations::Check(Conversation& talk, const SessionAnswer& answer) {
  if (Missing(talk, answer.status)) return;
  if (!answer.status.ok()) return;
  EXPECT_TRUE(talk.exists) << talk.name;
  ASSERT_FALSE(answer.sessions.empty());
  EXPECT_EQ(answer.sessions[0].position, static_cast<int32_t>(talk.tokens.size())) << talk.name;
}

void Conversations::Resolve(Conversation& talk, std::vector<int32_t> appended) {
  Run(talk, "get", SessionOperation::Get{}, [this, &talk, appended](const SessionAnswer& answer) {
    if (Missing(talk, answer.status)) return;
    ASSERT_TRUE(answer.status.ok()) << answer.status;
    // A turn whose call is gone ends with its steps in flight.
    if (answer.sessions.at(0).state == SessionState::kActive) {
      talk.busy = true;
      agenda_.In(kAgainNs, [this, &talk, appended] { Resolve(talk, appended); });
      return;
    }
    const auto position = static_cast<size_t>(answer.sessions.at(0).position);
    if (position != talk.tokens.size()) {
      EXPECT_EQ(position, talk.tokens.size() + appended.size()) << "a part of a turn was kept";
      talk.tokens.insert(talk.tokens.end(), appended.begin(), appended.end());
    }
    talk.exists = true;
  });
}

void Conversations::UnpinAll() {
  for (const Conversation& talk : talks_) {
    engine_->Run({.tenant = talk.tenant, .name = talk.name, .action = SessionOperation::Unpin{}},
                 [](const SessionAnswer&) {});
  }
}

void Conversations::Close(Conversation& talk) {
  Run(talk, "close", SessionOperation::Close{}, [this, &talk](const SessionAnswer& answer) {
    if (Missing(talk, answer.status)) return;
    EXPECT_TRUE(answer.status.ok()) << answer.status;
    talk.exists = false;
    talk.tokens.clear();
  });
}

void Conversations::Operate(Conversation& talk) {
  const int64_t dice = dice_.Between(0, 99);
  if (dice < 15) return Change(talk);
  if (dice < 60) return Move(talk);
  if (dice < 75) return Transfer(talk);
  if (dice < 85) return Fork(talk);
  if (dice < 95) return Truncate(talk);
  Import(talk);
}

void Conversations::Change(Conversation& talk) {
  if (dice_.OneIn(4)) return Close(talk);
  Run(talk, "create", SessionOperation::Create{}, [this, &talk](const SessionAnswer& answer) {
    const bool lapsed = answer.status.ok() && talk.exists;
    EXPECT_TRUE(!lapsed || rules_.may_expire) << "created a second " << talk.name;
    if (!answer.status.ok()) {
      EXPECT_TRUE(talk.exists || IsLimit(answer.status)) << answer.status;
      return;
    }
    talk.exists = true;
    talk.tokens.clear();
  });
}

void Conversations::Move(Conversation& talk) {
  using Operation = SessionOperation;
  const std::array<std::pair<const char*, Operation::Action>, 7> choices = {{
      {"get", Operation::Get{}},
      {"offload", Operation::Offload{}},
      {"save", Operation::Save{}},
      {"prefetch", Operation::Prefetch{}},
      {"pin", Operation::Pin{}},
      {"unpin", Operation::Unpin{}},
      {"touch", Operation::Touch{.retain_priority = static_cast<int32_t>(dice_.Between(-2, 2))}},
  }};
  const auto& [what, action] = choices[static_cast<size_t>(dice_.Between(0, 6))];
  Run(talk, what, action, [this, &talk](const SessionAnswer& answer) { Check(talk, answer); });
}

// The tokens that leave are those of the model. Ends after a while; an export keeps the session
// busy until then, a snapshot does not.
void Conversations::Transfer(Conversation& talk) {
  const bool snapshot = dice_.OneIn(2);
  const SessionOperation::Action begin =
      snapshot ? SessionOperation::Action(SessionOperation::BeginSnapshot{.with_pages = true})
               : SessionOperation::Action(SessionOperation::BeginExport{});
  Run(talk, snapshot ? "snapshot" : "export", begin,
      [this, &talk, snapshot](const SessionAnswer& answer) {
        if (Missing(talk, answer.status) || !answer.status.ok()) return;
        EXPECT_EQ(answer.transfer.tokens, talk.tokens) << talk.name;
        const uint64_t turn = answer.transfer.turn;
        talk.busy = !snapshot;
        agenda_.In(dice_.Between(0, kTransferNs), [this, &talk, snapshot, turn] {
          const SessionOperation::Action end =
              snapshot ? SessionOperation::Action(SessionOperation::EndSnapshot{turn})
                       : SessionOperation::Action(SessionOperation::EndExport{turn});
          if (!snapshot) {
            return Run(talk, "end of export", end, [](const SessionAnswer& answer) {
              EXPECT_TRUE(answer.status.ok()) << answer.status;
            });
          }
          engine_->Run({.tenant = talk.tenant, .name = talk.name, .action = end},
                       [](const SessionAnswer&) {});
        });
      });
}

void Conversations::Fork(Conversation& talk) {
  Conversation* const other = AnyIdle();
  if (other == nullptr || other == &talk || other->tenant != talk.tenant) return;
  const int64_t position = dice_.Between(0, static_cast<int64_t>(talk.tokens.size()));
  other->busy = true;
  Run(talk, "fork", SessionOperation::Fork{other->name, position},
      [this, &talk, other, position](const SessionAnswer& answer) {
        other->busy = false;
        if (answer.status.code() == absl::StatusCode::kNotFound) {
          Missing(talk, answer.status);
          return;
        }
        if (!answer.status.ok()) return;
        EXPECT_TRUE(talk.exists);
        EXPECT_TRUE(!other->exists || rules_.may_expire);
        other->exists = true;
        other->tokens.assign(talk.tokens.begin(), talk.tokens.begin() + position);
      });
}

void Conversations::Truncate(Conversation& talk) {
  const int64_t position = dice_.Between(0, static_cast<int64_t>(talk.tokens.size()) + 1);
  Run(talk, "truncate", SessionOperation::Truncate{position},
      [this, &talk, position](const SessionAnswer& answer) {
        if (Missing(talk, answer.status)) return;
        const bool beyond = position > static_cast<int64_t>(talk.tokens.size());
        EXPECT_EQ(answer.status.ok(), !beyond) << answer.status;
        if (!beyond) talk.tokens.resize(static_cast<size_t>(position));
        Check(talk, answer);
      });
}

// Of tokens without KV, complete or given up.
void Conversations::Import(Conversation& talk) {
  std::vector<int32_t> tokens(static_cast<size_t>(dice_.Between(1, rules_.max_model_len / 2)));
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(dice_.Between(0, rules_.vocab_size - 1));
  }
  Run(talk, "import", SessionOperation::BeginImport{.tokens = tokens},
      [this, &talk, tokens](const SessionAnswer& answer) {
        if (!answer.status.ok()) {
          EXPECT_TRUE(talk.exists || IsLimit(answer.status)) << answer.status;
          return;
        }
        EXPECT_TRUE(!talk.exists || rules_.may_expire);
        talk.busy = true;
        const bool complete = !dice_.OneIn(3);
        const uint64_t turn = answer.transfer.turn;
        agenda_.In(dice_.Between(0, kTransferNs), [this, &talk, tokens, complete, turn] {
          Run(talk, "end of import", SessionOperation::EndImport{turn, complete},
              [this, &talk, tokens, complete](const SessionAnswer& end) {
                EXPECT_EQ(end.status.ok(), complete) << end.status;
                talk.exists = complete;
                talk.tokens = complete ? tokens : std::vector<int32_t>();
              });
        });
      });
}

}  // namespace quire
