// The writer's one message is the result. A cancel that comes while streams are made waits for
// them, or one of them would miss it.
#include "server/answers/reply_run.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"
#include "server/generate/call_opening.h"
#include "server/generate/stream_table.h"

namespace quire {

ReplyRun::ReplyRun(const GenerateResources* resources, Options options)
    : resources_(resources),
      options_(std::move(options)),
      writer_(this),
      streams_(resources, &writer_, options_.origin, /*one_reply=*/true) {}

void ReplyRun::Start(const v1::GenerateRequest& request) {
  const std::shared_ptr<ReplyRun> kept = shared_from_this();
  absl::StatusOr<ParsedRequest> parsed = Open(request);
  bool cancelled = false;
  {
    const std::lock_guard lock(mutex_);
    opened_ = true;
    cancelled = cancelled_;
  }
  if (!parsed.ok()) return streams_.first()->Refuse(parsed.status());
  if (cancelled) return writer_.Cancel();
  streams_.Send(*std::move(parsed));
}

absl::StatusOr<ParsedRequest> ReplyRun::Open(const v1::GenerateRequest& request) {
  RETURN_IF_ERROR(Enter());
  if (request.detach_seconds() != 0) {
    return InvalidField("detach_seconds", "is for Generate alone");
  }
  ASSIGN_OR_RETURN(ParsedRequest parsed, DecodeGenerate(request, resources_->model,
                                                        SeedOf(*resources_, *streams_.first())));
  RETURN_IF_ERROR(streams_.Open(parsed, [this] { return Enter(); }));
  options_.adjust(*parsed.request);
  return parsed;
}

absl::Status ReplyRun::Enter() {
  const std::lock_guard lock(mutex_);
  ++entered_;  // refused ones leave too
  return resources_->streams.Enter(options_.origin.caller->tenant);
}

void ReplyRun::Cancel() {
  const std::shared_ptr<ReplyRun> kept = shared_from_this();
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (!opened_) return;
  }
  writer_.Cancel();
}

void ReplyRun::FinishWith(const grpc::ByteBuffer* last, const absl::Status& status) {
  const Done done = std::move(options_.done);
  if (last == nullptr) {
    return done(status.ok() ? StatusOf(FinishReason::kCancelled) : status);
  }
  grpc::Slice bytes;
  if (!last->DumpToSingleSlice(&bytes).ok()) return done(absl::InternalError("the result is lost"));
  done(std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size()));
}

void ReplyRun::Release() {
  writer_.Done();
  int entered = 0;
  {
    const std::lock_guard lock(mutex_);
    entered = std::exchange(entered_, 0);
  }
  for (; entered > 0; --entered) resources_->streams.Leave(options_.origin.caller->tenant);
}

}  // namespace quire
