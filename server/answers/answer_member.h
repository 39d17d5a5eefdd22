// AnswerMember: one of several answers to a request, as a stream on the request's call. Its frames
// go out as they come, or HeldAnswers takes its end.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "server/answers/held_answers.h"
#include "server/generate/generate_frames.h"
#include "server/wire/stream_member.h"

namespace quire {

// The part that the answers of a request share.
class AnswerGroup {
 public:
  explicit AnswerGroup(const AnswerCounts& counts) : counts_(counts), left_(counts.best_of) {}

  const AnswerCounts& counts() const { return counts_; }
  // Counts an answer's end: the usage of all with the last one, else nullopt. Any thread.
  std::optional<Usage> Add(const Usage& usage);

 private:
  const AnswerCounts counts_;
  std::mutex mutex_;
  // Under mutex_.
  int32_t left_;
  Usage sum_;
};

class AnswerMember final : public StreamMember {
 public:
  // `resources` and `writer` outlive it.
  AnswerMember(const GenerateResources* resources, SharedWriter* writer, uint32_t index,
               const GenerationStream::Origin& origin, std::unique_ptr<RequestTrace> trace);

  // Before its stream starts. Null `held`: frames go out as they come.
  void Join(std::shared_ptr<AnswerGroup> group, std::shared_ptr<HeldAnswers> held);

  void Written(bool ok) override;
  void Cancel() override;

 private:
  class Format;
  AnswerMember(const GenerateResources* resources, SharedWriter* writer,
               std::unique_ptr<Format> format, const GenerationStream::Origin& origin,
               std::unique_ptr<RequestTrace> trace);

  void WriteEnd(const EndFrame& end) override;
  absl::Status CheckSize(int64_t bytes) const override;

  Format* const format_;  // the base's
  std::shared_ptr<HeldAnswers> held_;
};

}  // namespace quire
