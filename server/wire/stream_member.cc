// Frames from the stream to the shared writer, and back whether they went out.
#include "server/wire/stream_member.h"

#include <utility>

namespace quire {

StreamMember::StreamMember(const GenerateResources* resources, SharedWriter* writer,
                           std::unique_ptr<FrameFormat> format,
                           const GenerationStream::Origin& caller,
                           std::unique_ptr<RequestTrace> trace)
    : resources_(resources),
      writer_(writer),
      format_(std::move(format)),
      stream_(std::make_shared<GenerationStream>(resources, static_cast<StreamOutlet*>(this),
                                                 GenerationStream::Shape::kStream, caller,
                                                 std::move(trace))) {}

void StreamMember::Written(bool ok) { stream_->WriteDone(ok); }

void StreamMember::Cancel() { stream_->Cancelled(); }

void StreamMember::Released() { stream_->Closed(); }

void StreamMember::WriteAccepted(const AcceptedFrame& accepted) {
  accepted_ = true;
  Write(format_->Accepted(accepted));
}

void StreamMember::WriteTokens(const OutputDelta& delta, const OutputOptions& output) {
  Write(format_->Tokens(delta, output));
}

void StreamMember::Write(const std::optional<std::string>& frame) {
  if (!frame.has_value()) return stream_->WriteDone(true);
  writer_->Write(this, *frame);
}

void StreamMember::WriteEnd(const EndFrame& end) {
  const std::optional<std::string> last = format_->End(end);
  if (ended_) ended_(absl::OkStatus());
  writer_->Leave(this, last);
}

void StreamMember::Fail(const absl::Status& failure) {
  const absl::Status status = format_->Named(failure);
  const std::optional<std::string> last = format_->Failure(status, accepted_);
  if (ended_) ended_(status);
  if (!last.has_value()) writer_->Close(status);
  writer_->Leave(this, last);
}

void StreamMember::Reset() { writer_->Reset(); }

absl::Status StreamMember::CheckSize(int64_t bytes) const {
  return format_->CheckSize(bytes, resources_->calls.options.max_reply_bytes);
}

}  // namespace quire
