// Each item is a ReplyRun whose result goes out as a message of the batch.
#include "server/batch/generate_items.h"

#include <memory>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/answers/reply_run.h"
#include "server/batch/item_status.h"
#include "server/call/status_codec.h"
#include "server/call/wire_check.h"

namespace quire {
namespace {

class GenerateItem final : public SharedWriter::Member,
                           public std::enable_shared_from_this<GenerateItem> {
 public:
  explicit GenerateItem(ItemPlace place) : place_(std::move(place)) {}

  // Joins the call and starts, unless the call has ended.
  void Start(const GenerateResources* resources, const v1::GenerateRequest& request) {
    const std::shared_ptr<GenerateItem> self = shared_from_this();
    run_ = std::make_shared<ReplyRun>(
        resources,
        ReplyRun::Options{
            .origin = place_.origin,
            .done = [self](const absl::StatusOr<std::string>& result) { self->Reply(result); },
            .reset = [writer = place_.writer] { writer->Reset(); }});
    const std::shared_ptr<ReplyRun> run = run_;
    if (place_.writer->Join(self)) return run->Start(request);
    run_.reset();  // which holds this
  }

  void Written(bool) override {}  // its one message is its last
  void Cancel() override { run_->Cancel(); }
  void Released() override {
    run_->Release();
    // The call owns the writer, which owns this.
    const std::function<void()> released = std::move(place_.released);
    released();
  }

 private:
  void Reply(const absl::StatusOr<std::string>& result) {
    v1::GenerateBatchResult message;
    message.set_index(place_.index);
    if (!result.ok()) {
      FillItemStatus(result.status(), message.mutable_status());
    } else {
      message.mutable_result()->ParseFromString(*result);
    }
    place_.writer->Leave(this, message.SerializeAsString());
  }

  ItemPlace place_;
  std::shared_ptr<ReplyRun> run_;  // constant from Start on
};

}  // namespace

absl::StatusOr<Batch> DecodeGenerateBatch(const grpc::ByteBuffer& bytes,
                                          const GenerateResources* resources) {
  const auto request = std::make_shared<v1::GenerateBatchRequest>();
  RETURN_IF_ERROR(ParseMessage(bytes, request.get()));
  if (request->requests().empty() || request->requests_size() > kMaxItems) {
    return InvalidField("requests", "must have 1 to " + std::to_string(kMaxItems) +
                                        " requests, not " +
                                        std::to_string(request->requests_size()));
  }
  return Batch{.num_items = static_cast<size_t>(request->requests_size()),
               .start = [resources, request](ItemPlace place) {
                 const auto index = static_cast<int>(place.index);
                 std::make_shared<GenerateItem>(std::move(place))
                     ->Start(resources, request->requests(index));
               }};
}

}  // namespace quire
