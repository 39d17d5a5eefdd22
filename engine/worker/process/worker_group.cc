// The conversation with each rank, and the end of all when one ends.
#include "engine/worker/process/worker_group.h"

#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "kernels/check.h"

namespace quire {
namespace {

// A worker that has closed its socket is about to end; its exit status says more than the closing.
constexpr double kEndingSeconds = 2;

bool Readable(int fd) {
  pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&ready, 1, 0) > 0;
}

}  // namespace

WorkerGroup::WorkerGroup(int32_t ranks) : start_(ranks, SteadyNowNs()) {}

absl::StatusOr<std::unique_ptr<WorkerGroup>> WorkerGroup::Start(
    const std::string& program, const std::vector<WorkerOrder>& orders, int bell_fd) {
  CHECK(!orders.empty());
  std::unique_ptr<WorkerGroup> group(new WorkerGroup(static_cast<int32_t>(orders.size())));
  ASSIGN_OR_RETURN(group->unsized_, SharedMemory::Create("quire steps"));
  for (const WorkerOrder& order : orders) {
    const int32_t rank = order.spec.tp.rank;
    ASSIGN_OR_RETURN(WorkerProcess process,
                     WorkerProcess::Start({.program = program,
                                           .rank = rank,
                                           .memory_fd = group->unsized_.fd(),
                                           .bell_fd = bell_fd,
                                           .arena_fd = order.arena ? order.arena->fd() : -1,
                                           .relay_fd = order.relay ? order.relay->get() : -1}));
    Log(Severity::kInfo, "worker started",
        {{"rank", rank}, {"pid", static_cast<int>(process.pid())}, {"device", order.device}});
    group->ranks_.push_back(std::make_unique<Rank>(std::move(process), rank));
    Rank& started = *group->ranks_.back();
    // It may have ended already, because a library is missing for example.
    if (!SendMessage(started.process.socket(), EncodeOrder(order)).ok()) {
      return group->EndOf(started);
    }
  }
  return group;
}

WorkerGroup::~WorkerGroup() {
  for (auto& rank : ranks_) rank->process.Signal(SIGKILL);
}

std::string WorkerGroup::NameOf(const Rank& rank) const {
  const auto same = [&rank](const auto& other) { return other.get() == &rank; };
  const auto index = std::find_if(ranks_.begin(), ranks_.end(), same) - ranks_.begin();
  return "worker " + std::to_string(index) + " (pid " + std::to_string(rank.process.pid()) + ")";
}

void WorkerGroup::AddPollFds(std::vector<pollfd>& fds) const {
  for (const auto& rank : ranks_) {
    fds.push_back({.fd = rank->process.pidfd(), .events = POLLIN, .revents = 0});
    if (rank->output_open) {
      fds.push_back({.fd = rank->process.output(), .events = POLLIN, .revents = 0});
    }
    if (rank->socket_open) {
      fds.push_back({.fd = rank->process.socket(), .events = POLLIN, .revents = 0});
    }
  }
}

void WorkerGroup::Handle() {
  if (state_ == State::kDead) return;
  for (auto& rank : ranks_) {
    if (const absl::Status status = Read(*rank); !status.ok()) return Condemn(status);
  }
  MoveOn();
}

// Takes all messages that a rank has sent; an error when it has ended.
absl::Status WorkerGroup::Read(Rank& rank) {
  // Asked first: if it has ended, the reads below get everything it ever wrote.
  const bool ended = !rank.process.Ending().empty();
  absl::Status said;
  while (said.ok() && rank.socket_open && Readable(rank.process.socket())) {
    said = rank.inbox.ReadFrom(rank.process.socket());
    if (absl::IsInvalidArgument(said)) return SaidBy(rank, said);
    rank.socket_open = said.ok();
    while (std::optional<std::string> text = rank.inbox.Next()) {
      const absl::StatusOr<WorkerMessage> message = DecodeMessage(*text);
      const absl::Status taken = message.ok() ? Take(rank, *message) : message.status();
      // The first error caused the later ones.
      if (!taken.ok()) return SaidBy(rank, taken);
    }
  }
  if (rank.output_open) rank.output_open = rank.output.ReadFrom(rank.process.output());
  return said.ok() && !ended ? absl::OkStatus() : EndOf(rank);
}

absl::Status WorkerGroup::Take(Rank& rank, const WorkerMessage& message) {
  ++rank.messages;
  if (const auto* failure = std::get_if<WorkerFailure>(&message)) return failure->status;
  if (const auto* facts = std::get_if<DeviceFacts>(&message)) {
    if (state_ != State::kDescribing) return absl::InternalError("described its device twice");
    rank.facts = *facts;
    rank.described = true;
    return absl::OkStatus();
  }
  if (state_ != State::kLoading) return absl::InternalError("was ready before it was asked");
  if (const auto* share = std::get_if<WorkerShare>(&message)) {
    if (rank.share || rank.ready) return absl::InternalError("shared bytes out of order");
    rank.share = share->bytes;
    return absl::OkStatus();
  }
  rank.report = std::get<WorkerReport>(message);
  rank.ready = true;
  return absl::OkStatus();
}

absl::Status WorkerGroup::SaidBy(const Rank& rank, const absl::Status& status) const {
  return {status.code(), NameOf(rank) + ": " + std::string(status.message())};
}

// One sentence on how a rank ended that has exited or closed its socket.
absl::Status WorkerGroup::EndOf(Rank& rank) {
  rank.process.AwaitEnd(kEndingSeconds);
  if (rank.output_open) rank.output.ReadFrom(rank.process.output());
  std::string how = rank.process.Ending();
  if (how.empty()) how = "closed its socket";
  const std::string last(rank.output.last());
  return absl::UnavailableError(NameOf(rank) + " " + how +
                                (last.empty() ? "" : "; its last line was: " + last));
}

void WorkerGroup::MoveOn() {
  const auto all = [this](auto predicate) {
    return std::all_of(ranks_.begin(), ranks_.end(),
                       [&](const auto& rank) { return predicate(*rank); });
  };
  if (state_ == State::kDescribing && all([](const Rank& rank) { return rank.described; })) {
    facts_ = (*std::min_element(ranks_.begin(), ranks_.end(), [](const auto& a, const auto& b) {
               return a->facts.free_bytes < b->facts.free_bytes;
             }))->facts;
    state_ = State::kDescribed;
  }
  if (state_ == State::kLoading && all([](const Rank& rank) { return rank.share.has_value(); })) {
    if (const absl::Status sent = AnswerShares(); !sent.ok()) return Condemn(sent);
  }
  const auto any = [this](auto predicate) {
    return std::ranges::any_of(ranks_, [&](const auto& rank) { return predicate(*rank); });
  };
  if (state_ == State::kLoading && any([](const Rank& rank) { return rank.ready; }) &&
      any([](const Rank& rank) { return rank.share.has_value(); })) {
    return Condemn(absl::InternalError("one rank is ready and another one still shares bytes"));
  }
  if (state_ == State::kLoading && all([](const Rank& rank) { return rank.ready; })) {
    WorkerReport& joined = ranks_.front()->report;
    joined.late_masks = all([](const Rank& rank) { return rank.report.late_masks; });
    for (const auto& rank : ranks_) {
      if (!rank->facts.uuid.empty()) joined.gpus.push_back(rank->facts.uuid);
    }
    state_ = State::kReady;
  }
}

// Ends a round: every rank learns the bytes of all.
absl::Status WorkerGroup::AnswerShares() {
  std::vector<std::string> shares;
  for (auto& rank : ranks_) {
    shares.push_back(*std::move(rank->share));
    rank->share.reset();
  }
  for (auto& rank : ranks_) {
    if (!SendMessage(rank->process.socket(), EncodeShares(shares)).ok()) return EndOf(*rank);
  }
  return absl::OkStatus();
}

void WorkerGroup::Load(const std::vector<WorkerOrder>& orders) {
  CHECK(state_ == State::kDescribed);
  CHECK_EQ(orders.size(), ranks_.size());
  absl::StatusOr<StepMemory> memory =
      StepMemory::Create(std::move(unsized_), StepShapeOf(orders.front().spec));
  if (!memory.ok()) return Condemn(memory.status());
  memory_ = std::make_shared<StepMemory>(*std::move(memory));
  progress_.emplace(memory_);
  for (size_t i = 0; i < orders.size(); ++i) {
    const absl::Status sent = SendMessage(ranks_[i]->process.socket(), EncodeOrder(orders[i]));
    if (!sent.ok()) return Condemn(EndOf(*ranks_[i]));
  }
  state_ = State::kLoading;
  start_.Begin(SteadyNowNs());
}

void WorkerGroup::CheckProgress(int64_t now_ns, double timeout_seconds) {
  if (state_ == State::kDescribing || state_ == State::kLoading) {
    return CheckStart(now_ns, timeout_seconds);
  }
  if (state_ != State::kReady) return;
  const std::optional<GroupProgress::Stall> stall = progress_->Check(now_ns, timeout_seconds);
  if (stall) Condemn(absl::UnavailableError(Describe(*stall)));
}

std::string WorkerGroup::NamesOf(const std::vector<int32_t>& ranks) const {
  std::string names;
  for (const int32_t rank : ranks) names += (names.empty() ? "" : " and ") + NameOf(*ranks_[rank]);
  return names;
}

std::string WorkerGroup::Describe(const GroupProgress::Stall& stall) {
  if (ranks_.size() == 1) return NameOf(*ranks_.front()) + " has finished " + stall.work;
  // A stopped rank may have begun the collective in which the others wait for it.
  std::vector<int32_t> stopped;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (ranks_[i]->process.Stopped()) stopped.push_back(static_cast<int32_t>(i));
  }
  std::string why = "no worker is behind the others of its group";
  if (!stopped.empty()) {
    why = NamesOf(stopped) + (stopped.size() == 1
                                  ? " is stopped by a signal and holds up its group"
                                  : " are stopped by a signal and hold up their group");
  } else if (stall.behind.size() < ranks_.size()) {
    why = NamesOf(stall.behind) +
          (stall.behind.size() == 1 ? " holds up its group" : " hold up their group");
  }
  why += ", which has finished " + stall.work;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    why += "; worker " + std::to_string(i) + " has " + stall.counts[i];
  }
  return why;
}

// Seconds since the first call that saw the rank stopped.
double WorkerGroup::StoppedFor(Rank& rank, int64_t now_ns) {
  if (!rank.process.Stopped()) {
    rank.stopped_since_ns = 0;
    return 0;
  }
  if (rank.stopped_since_ns == 0) rank.stopped_since_ns = now_ns;
  return static_cast<double>(now_ns - rank.stopped_since_ns) * 1e-9;
}

void WorkerGroup::CheckStart(int64_t now_ns, double timeout_seconds) {
  if (ranks_.size() == 1) return;
  std::vector<StartProgress::Stage> stages;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = *ranks_[i];
    stages.push_back({.messages = rank.messages});
    if (memory_ != nullptr) {
      stages.back().collectives = memory_->heartbeat(static_cast<int32_t>(i)).collectives.load();
    }
    if (StoppedFor(rank, now_ns) <= timeout_seconds) continue;
    return Condemn(
        absl::UnavailableError(NameOf(rank) + " is stopped by a signal and holds up the start"));
  }
  const std::optional<StartProgress::Lag> lag = start_.Check(stages, now_ns, timeout_seconds);
  if (lag) Condemn(absl::UnavailableError(Describe(*lag)));
}

std::string WorkerGroup::Describe(const StartProgress::Lag& lag) const {
  const int32_t first = lag.ranks.front();
  const Rank& late = *ranks_[first];
  // A rank that is ahead.
  int32_t ahead = 0;
  while (std::ranges::find(lag.ranks, ahead) != lag.ranks.end()) ++ahead;
  const Rank& other = *ranks_[ahead];
  std::string what = "is not ready";
  if (state_ == State::kDescribing) {
    what = "has not described its device";
  } else if (other.messages == late.messages) {
    const uint64_t begun = memory_->heartbeat(first).collectives.load();
    what = "loads its model and has not begun collective " + std::to_string(begun + 1);
  } else if (!other.ready) {
    // The first message was the device.
    what = "has not shared its bytes of round " + std::to_string(late.messages);
  }
  const char* how = late.process.Stopped() ? " is stopped by a signal and" : "";
  const bool alone = lag.ranks.size() == 1;
  return NamesOf(lag.ranks) + how +
         (alone ? " holds up the start: it " : " hold up the start: each ") + what + " after " +
         std::to_string(lag.waited_ns / 1'000'000) + " ms, for which the others took at most " +
         std::to_string(lag.others_ns / 1'000'000) + " ms";
}

void WorkerGroup::Condemn(const absl::Status& why) {
  CHECK(!why.ok());
  for (auto& rank : ranks_) rank->process.Signal(SIGKILL);
  if (state_ == State::kDead) return;
  state_ = State::kDead;
  death_ = why;
}

void WorkerGroup::AwaitEnd(double seconds) {
  const int64_t until_ns = SteadyNowNs() + static_cast<int64_t>(seconds * 1e9);
  for (auto& rank : ranks_) {
    const double left = std::max(0.0, static_cast<double>(until_ns - SteadyNowNs()) * 1e-9);
    const bool ended = rank->process.AwaitEnd(left);
    if (rank->output_open) rank->output.ReadFrom(rank->process.output());
    if (ended) continue;
    Log(Severity::kWarning, "worker did not end in time; killing it",
        {{"pid", static_cast<int>(rank->process.pid())}});
    rank->process.Signal(SIGKILL);
  }
}

}  // namespace quire
