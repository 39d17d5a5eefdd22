// ReplyRun: one GenerateRequest answered as GenerateUnary answers it, with one answer or several,
// but without a gRPC call of its own: an item of a batch, a line of a job.
#pragma once

#include <grpcpp/support/byte_buffer.h>

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/answers/answer_streams.h"
#include "server/generate/generation_stream.h"
#include "server/wire/shared_writer.h"

namespace quire {

// Any thread may call any member function. Owned by shared_ptr, because its streams end on threads
// of their own.
class ReplyRun final : public std::enable_shared_from_this<ReplyRun>, SharedWriter::Call {
 public:
  // Called once, on any thread, maybe before Start returns: the bytes of a GenerateResult, or why
  // there is none. The run's last act: it may be given up from there.
  using Done = std::function<void(absl::StatusOr<std::string> result)>;
  // The request on its way to the engine, after all its checks: the run's owner may change it.
  using Adjust = std::function<void(Request& request)>;
  struct Options {
    GenerationStream::Origin origin;
    Done done;
    // Called when the result was not taken (Release) for the time that a slow reader has.
    std::function<void()> reset = [] {};
    Adjust adjust = [](Request&) {};
  };

  // `resources` outlive it.
  ReplyRun(const GenerateResources* resources, Options options);

  // Once.
  void Start(const v1::GenerateRequest& request);
  // Ends the run soon, with CANCELLED unless it has a result.
  void Cancel();
  // Once, behind Done: the result is taken, or never will be. Gives the server's streams back.
  void Release();

 private:
  absl::StatusOr<ParsedRequest> Open(const v1::GenerateRequest& request);
  absl::Status Enter();
  void BeginWrite(const grpc::ByteBuffer*) override {}  // the reply is the last message
  void FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) override;
  void Reset() override { options_.reset(); }

  const GenerateResources* const resources_;
  Options options_;
  SharedWriter writer_;
  AnswerStreams streams_;
  std::mutex mutex_;
  // Under mutex_.
  int entered_ = 0;      // of the server's streams
  bool opened_ = false;  // Start has made all streams
  bool cancelled_ = false;
};

}  // namespace quire
