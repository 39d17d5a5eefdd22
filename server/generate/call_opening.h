// CallOpening: what the reactors of all generating calls do around their streams: who calls and
// until when, the way of a decoded request to the engine, and the accounts of the gRPC call.
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/call/raw_service.h"
#include "server/generate/generate_resources.h"
#include "server/generate/generation_stream.h"
#include "server/generate/request_codec.h"

namespace quire {

// One gRPC call in the metrics and in its connection's count.
class CallAccount {
 public:
  // `method`: a literal, for the metrics. `resources` outlive it.
  CallAccount(const GenerateResources* resources, const char* method, const IncomingCall& call);

  // The origin of the streams.
  GenerationStream::Origin StreamOrigin() const;
  // Null without a tracer. The client finds the server's span by the header that the first bytes of
  // the answer carry.
  std::unique_ptr<RequestTrace> BeginTrace() const;

  // Once, before anything else happens.
  void Opened();
  // Takes one of the server's streams; UNAVAILABLE if it has none left, or drains. Done gives all
  // of them back.
  absl::Status Enter();
  // The same for a call that goes on with a request of before: a drain lets it.
  absl::Status EnterAgain();
  // From OnDone, before Done: one of the streams outlives the call, and leaves by itself.
  void HandOver() { --streams_; }
  // Before the library ends the call: the code that Done reports, and the server's load in the
  // trailers of a client that asks for it.
  void Ending(const absl::Status& status);
  int code() const { return code_.load(std::memory_order_relaxed); }
  // From OnDone, when the streams are closed.
  void Done();

 private:
  const GenerateResources* const resources_;
  const char* const method_;
  const IncomingCall call_;
  const int64_t opened_ns_;
  const int slot_;  // of the peer
  int streams_ = 0;
  std::atomic<int> code_{0};
};

// The seed of a stream whose request brings none.
uint64_t SeedOf(const GenerateResources& resources, const GenerationStream& stream);

// Claims the id that the client chose (empty: makes one) and watches the stream for a stall. Not
// OK: nothing happened.
absl::Status Register(const GenerateResources* resources,
                      const std::shared_ptr<GenerationStream>& stream,
                      const std::string& request_id);

// The same for a further answer to the request of `first`, which is registered: it has its id.
void RegisterAnswer(const GenerateResources* resources,
                    const std::shared_ptr<GenerationStream>& stream, const GenerationStream& first);

// The requests of `count` answers to `request` (docs/answers.md): answer i draws with the seed
// raised by i, and the scores of the prompt come with answer 0.
std::vector<std::unique_ptr<Request>> AnswersOf(const Request& request, size_t count);

// Hands requests to the engine, each for one of the streams: a single one, or answers to one prompt
// (Engine::Submit). Ends the streams itself where they are refused.
void SubmitToEngine(const GenerateResources* resources,
                    const std::vector<std::shared_ptr<GenerationStream>>& streams,
                    std::vector<std::unique_ptr<Request>> requests, const OutputOptions& output);

// Checks that the caller may ask for this, tokenises the prompt if that is needed, and submits it;
// the stream is registered. Not OK: nothing happened, and the caller refuses the stream. From here
// on the stream may end at any time. `submit` is called instead of SubmitToEngine if it is given.
using SubmitRequest =
    std::function<void(std::unique_ptr<Request> request, const OutputOptions& output)>;
absl::Status SendToEngine(const GenerateResources* resources,
                          const std::shared_ptr<GenerationStream>& stream, ParsedRequest decoded,
                          SubmitRequest submit = nullptr);

}  // namespace quire
