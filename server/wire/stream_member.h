// StreamMember: a GenerationStream with its format, as one of several on a gRPC call.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/generate/generation_stream.h"
#include "server/generate/stream_outlet.h"
#include "server/generate/wire_format.h"
#include "server/wire/shared_writer.h"

namespace quire {

// Made, joined to its writer, then started. The writer keeps it until its last message is out.
class StreamMember : public SharedWriter::Member, protected StreamOutlet {
 public:
  // Called on the thread that ends the stream, before its last message is queued. OK: a regular
  // end.
  using Ended = std::function<void(const absl::Status& status)>;

  // `resources` and `writer` outlive it.
  StreamMember(const GenerateResources* resources, SharedWriter* writer,
               std::unique_ptr<FrameFormat> format, const GenerationStream::Origin& caller,
               std::unique_ptr<RequestTrace> trace = nullptr);

  // Before the stream starts.
  void OnEnded(Ended ended) { ended_ = std::move(ended); }
  const std::shared_ptr<GenerationStream>& stream() const { return stream_; }
  FrameFormat& format() { return *format_; }

  void Written(bool ok) override;
  void Cancel() override;
  void Released() override;

 protected:
  void WriteEnd(const EndFrame& end) override;
  absl::Status CheckSize(int64_t bytes) const override;

 private:
  void WriteAccepted(const AcceptedFrame& accepted) override;
  void WriteTokens(const OutputDelta& delta, const OutputOptions& output) override;
  void Fail(const absl::Status& failure) override;
  void Reset() override;
  void Write(const std::optional<std::string>& frame);

  const GenerateResources* const resources_;
  SharedWriter* const writer_;
  const std::unique_ptr<FrameFormat> format_;
  bool accepted_ = false;
  Ended ended_;
  const std::shared_ptr<GenerationStream> stream_;
};

}  // namespace quire
