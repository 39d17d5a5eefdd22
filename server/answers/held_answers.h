// HeldAnswers: the ends of a request's answers until the last one has come. Then the n answers with
// the highest mean log probability are sent, or all of them in one message.
//
// The mean, not the sum: of two texts that are equally likely token by token, the sum prefers the
// shorter, and of all texts one that ends at once. OpenAI defines its best_of likewise.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/generate/generate_frames.h"
#include "server/generate/generate_resources.h"
#include "server/generate/generation_stream.h"
#include "server/wire/shared_writer.h"

namespace quire {

// Adds an answer's usage to that of its request, whose prompt counts once. `sum` is empty before
// the first.
void AddUsage(const Usage& usage, Usage* sum);

// Any thread. Shared by the members of a call, which outlive it on the call's writer.
class HeldAnswers {
 public:
  // `one_reply`: a GenerateResult, else frames. `resources` and `writer` outlive the call.
  HeldAnswers(const GenerateResources* resources, const AnswerCounts& counts, bool one_reply,
              SharedWriter* writer);

  // Draw `index` has so many bytes of output: OK if all still fit a reply. One thread at a time for
  // each index.
  absl::Status CheckSize(uint32_t index, int64_t bytes);
  // The end of a draw, which comes once; `member` has written all that it will write by itself.
  // The caller's member is not touched after that.
  void Take(uint32_t index, SharedWriter::Member* member,
            const std::shared_ptr<GenerationStream>& stream, const EndFrame& end);
  // A message of the member is out, or never will be. False: it is not from here.
  bool Written(uint32_t index, bool ok);
  // The call ends before its time: a member that is held leaves.
  void Drop(uint32_t index);

 private:
  enum class State : uint8_t {
    kOpen,     // its stream runs
    kHeld,     // its end is here
    kWriting,  // its tokens are on their way
    kGone,     // it leaves, or has left
  };
  struct Draw {
    State state = State::kOpen;
    SharedWriter::Member* member = nullptr;
    std::shared_ptr<GenerationStream> stream;  // keeps what `accepted` refers to
    std::optional<AcceptedFrame> accepted;
    OutputDelta output;
    FinishEvent finish;
    std::string stop_text;
    double logprob_sum = 0;
    AnswerTally tally;
    std::string last;  // the Finished frame, while its tokens are on their way
    int64_t bytes = 0;

    EndFrame End() const {
      return {.accepted = *accepted,
              .rest = output,
              .finish = finish,
              .stop_text = stop_text,
              .logprob_sum = logprob_sum,
              .tally = tally};
    }
  };

  std::vector<uint32_t> Rank() const;
  Usage AllUsage() const;
  void SendResult(const std::vector<uint32_t>& chosen, uint32_t last);
  void SendFrames(const std::vector<uint32_t>& chosen, uint32_t last);
  void Write(uint32_t index, const std::string& tokens);
  void Leave(uint32_t index, const std::optional<std::string>& message);
  void EndSending(uint32_t index);

  const GenerateResources* const resources_;
  const AnswerCounts counts_;
  const bool one_reply_;
  SharedWriter* const writer_;
  std::atomic<int64_t> bytes_{0};
  std::mutex mutex_;
  // Under mutex_; what a draw has, but its state, does not change once all are held.
  std::vector<Draw> draws_;
  int32_t open_;
  bool dropped_ = false;  // the call has failed
  int32_t sender_ = -1;   // the draw whose thread sends: it leaves behind the others
};

}  // namespace quire
