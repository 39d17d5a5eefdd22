// KeptAnswer: the answer of one request that may outlive its call. It is the outlet of the
// request's stream, keeps all output with its end, and passes it on to the call that reads it now.
// Without a reader the request goes on; when none has come for the request's detach_seconds it
// ends, and its answer is forgotten.
//
// The stream knows one outlet from its begin to its end and is never held up; the flow control of
// each reader is here. A reader that does not read loses its call, not the request.
//
// Owned by shared_ptr, because its users end in any order: its stream, its readers' calls, and the
// table of answers (KeptAnswers). Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/call/output_keeper.h"
#include "server/detach/attached_reader.h"
#include "server/detach/kept_answers.h"
#include "server/detach/kept_output.h"
#include "server/generate/generate_resources.h"
#include "server/generate/generation_stream.h"
#include "server/generate/stream_outlet.h"

namespace quire {

class KeptAnswer final : public StreamOutlet,
                         public OutputKeeper,
                         public std::enable_shared_from_this<KeptAnswer> {
 public:
  using Reader = std::shared_ptr<AttachedReader>;

  // Both outlive the answer.
  KeptAnswer(const GenerateResources* resources, KeptAnswers* answers)
      : resources_(*resources), answers_(*answers) {}

  // The refusal of an Attach whose answer does not exist, or is of another tenant.
  static absl::Status NotFound();

  // --- The call that brings the request, in this order.
  // `stream` has this as outlet and keeper.
  void Begin(std::shared_ptr<GenerationStream> stream, Reader reader);
  // The stream has its id: the answer can be attached to.
  void Admit(double detach_seconds);

  TenantId tenant() const { return tenant_; }
  // Constant from Admit on.
  const std::string& request_id() const { return request_id_; }

  // --- Calls that read.
  // Makes `reader` the one reader, from behind the first `after_tokens` tokens on. `took_over` says
  // whether another call ended for that. NOT_FOUND if the answer is forgotten, OUT_OF_RANGE if it
  // does not have this place.
  absl::Status Attach(const Reader& reader, uint32_t after_tokens, bool* took_over);
  void WriteDone(const Reader& reader, bool ok);
  // The call is cancelled: its connection is lost, or its client left.
  void Leave(const Reader& reader);
  // The call is over; `whole`: its end, and so all before it, went out. True if the answer takes
  // over the call's place among the open streams, because its request still runs.
  bool Done(const Reader& reader, bool whole);

  // --- Others.
  // Drops the answer unless it is being read, and ends its request if that runs.
  void Forget();

  // --- StreamOutlet and OutputKeeper.
  void WriteAccepted(const AcceptedFrame& accepted) override;
  void WriteTokens(const OutputDelta&, const OutputOptions&) override {}  // Keep has them
  void WriteEnd(const EndFrame& end) override;
  void Fail(const absl::Status& status) override;
  void Reset() override {}
  absl::Status CheckSize(int64_t) const override { return absl::OkStatus(); }
  void Keep(OutputDelta& output, bool holds_text) override;
  void Show() override;
  void Drop(const absl::Status& why) override;
  int64_t Check(int64_t now_ns) override;

 private:
  enum class Step : uint8_t { kNothing, kAccepted, kTokens, kEnd, kFail };
  using Lock = std::unique_lock<std::mutex>;
  // The end of the output as the stream told it.
  struct Ending {
    FinishEvent finish;
    std::string stop_text;
    double logprob_sum = 0;
    AnswerTally tally;
  };

  // These give the lock up.
  // Acts for a reader, if there is one, until there is nothing left to do.
  void Pump(Lock lock, const Reader& reader);
  // Lets no reader in any more, and ends the request if that runs.
  void Forget(Lock lock, const absl::Status& why);
  // Drops what is left of an answer whose request has ended. Its reader's call ends with `why`.
  void Close(Lock lock, const absl::Status& why);
  void Send(Step step, AttachedReader& reader, const OutputDelta& delta,
            const absl::Status& status);
  // All below: under mutex_.
  Step NextStep(AttachedReader& reader, OutputDelta* delta);
  // Ends the call of the current reader with `why`, unless its end was decided.
  Reader PartFrom(const absl::Status& why);
  // Readers whose calls do not end; `next_ns` becomes the time to look again, if that is earlier.
  std::vector<Reader> Stuck(int64_t now_ns, int64_t* next_ns);
  void Detach();
  void SetDetached(bool detached);
  void HoldTo(int64_t until_ns);
  void GiveUpPlace();
  void KeepWithinBounds();
  void FreeId();
  // The stream, if no one has a use for it any more; the caller closes it without the lock.
  std::shared_ptr<GenerationStream> TakeUnused();
  bool over() const { return ending_.has_value() || !failure_.ok(); }
  uint32_t shown() const;

  const GenerateResources& resources_;
  KeptAnswers& answers_;
  TenantId tenant_ = 0;
  std::string request_id_;
  int64_t detach_ns_ = 0;

  std::mutex mutex_;
  // Under mutex_.
  std::shared_ptr<GenerationStream> stream_;  // null once nothing is left to do with it
  Reader reader_;                             // null: detached
  std::vector<Reader> leaving_;               // calls whose end was decided but is not over
  KeptOutput output_;
  int64_t counted_bytes_ = 0;  // of output_, by answers_
  bool holds_text_ = false;    // text of the last token may still come
  uint32_t read_ = 0;          // tokens that the last reader was sent
  bool paused_ = false;        // too much is unread: the engine holds the request
  std::optional<AcceptedFrame> accepted_;
  std::optional<Ending> ending_;
  absl::Status failure_;      // not OK: the request ended with this
  bool kept_ = false;         // answers_ has this
  bool forgotten_ = false;    // no reader is let in any more
  bool closed_ = false;       // likewise, and the request has ended
  bool id_free_ = false;      // the request's id was given up at its end
  bool holds_place_ = false;  // of the request, among the open streams
  bool detached_ = false;     // counted so
  int64_t until_ns_ = 0;      // forgotten then, if there is no reader
};

}  // namespace quire
