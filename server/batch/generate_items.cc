// Each item is a ReplyRun whose result goes out as a message of the batch. The text pool reads and
// writes lines, because they may be long.
#include "server/batch/generate_items.h"

#include <memory>
#include <string>
#include <utility>

#include "engine/base/status_macros.h"
#include "quire/v1/inference.pb.h"
#include "server/answers/reply_run.h"
#include "server/call/status_codec.h"
#include "server/call/text_pool.h"
#include "server/call/wire_check.h"
#include "server/identity/caller.h"
#include "server/lines/item_status.h"
#include "server/lines/request_line.h"

namespace quire {
namespace {

// Of a result's message beside its JSON.
constexpr int64_t kFrameBytes = 8192;

class GenerateItem : public SharedWriter::Member,
                     public std::enable_shared_from_this<GenerateItem> {
 public:
  GenerateItem(const GenerateResources* resources, ItemPlace place)
      : resources_(resources), place_(std::move(place)) {}

  // Joins the call; false if that has ended.
  bool Join() {
    const std::shared_ptr<GenerateItem> self = shared_from_this();
    run_ = std::make_shared<ReplyRun>(
        resources_,
        ReplyRun::Options{
            .origin = place_.origin,
            .done = [self](const absl::StatusOr<std::string>& result) { self->Done(result); },
            .reset = [writer = place_.writer] { writer->Reset(); }});
    if (place_.writer->Join(self)) return true;
    run_.reset();  // which holds this
    return false;
  }
  // Once, behind Join.
  void Run(const v1::GenerateRequest& request) {
    const std::shared_ptr<ReplyRun> run = run_;
    run->Start(request);
  }

  void Written(bool) override {}  // its one message is its last
  void Cancel() override { run_->Cancel(); }
  void Released() override {
    run_->Release();
    run_.reset();  // a run that was never started still holds this
    // The call owns the writer, which owns this.
    const std::function<void()> released = std::move(place_.released);
    released();
  }

 protected:
  // The run has ended.
  virtual void Done(const absl::StatusOr<std::string>& result) {
    v1::GenerateBatchResult message;
    if (result.ok()) message.mutable_result()->ParseFromString(*result);
    Reply(result.status(), &message);
  }
  void Reply(const absl::Status& status, v1::GenerateBatchResult* message) {
    message->set_index(place_.index);
    if (!status.ok()) FillItemStatus(status, message->mutable_status());
    place_.writer->Leave(this, message->SerializeAsString());
  }

  // Has the text pool do `work` on `bytes` of text; UNAVAILABLE when it has no room.
  absl::Status Queue(size_t bytes, std::function<void()> work) {
    return resources_->calls.text_pool.Run(place_.origin.caller->tenant, bytes, std::move(work));
  }

  const GenerateResources* const resources_;

 private:
  ItemPlace place_;
  std::shared_ptr<ReplyRun> run_;  // constant between Join and Released
};

// An item that comes as a line and goes as one.
class LineItem final : public GenerateItem {
 public:
  using GenerateItem::GenerateItem;

  // Once, behind Join. `batch` has the line.
  void Read(const std::shared_ptr<const v1::GenerateBatchRequest>& batch, int index) {
    const auto self = std::static_pointer_cast<LineItem>(shared_from_this());
    line_.number = batch->lines(index).number();
    const absl::Status queued = Queue(batch->lines(index).text().size(), [self, batch, index] {
      RequestLine& line = self->line_;
      const absl::Status read = ReadRequestLine(batch->lines(index).text(), &line);
      if (!read.ok()) return self->Write(read);
      if (batch->has_model() && !line.request.has_model()) line.request.set_model(batch->model());
      self->Run(line.request);
    });
    if (!queued.ok()) Write(queued);
  }

 private:
  void Done(const absl::StatusOr<std::string>& result) override {
    const auto self = std::static_pointer_cast<LineItem>(shared_from_this());
    const auto write = [self, result] { self->Write(result); };
    const size_t bytes = result.ok() ? result->size() : 0;
    if (!Queue(bytes, write).ok()) write();
  }
  void Write(const absl::StatusOr<std::string>& result) {
    LineResult written = WriteLineResult(line_, result, resources_->model.tokenizer.get(),
                                         resources_->calls.options.max_reply_bytes - kFrameBytes);
    v1::GenerateBatchResult message;
    message.set_line(std::move(written.json));
    Reply(written.status, &message);
  }

  RequestLine line_;  // constant once it is read
};

// Every item may get a copy of the batch's model.
constexpr size_t kMaxModelBytes = 512;

absl::Status CheckNumber(const std::string& field, int number) {
  if (number >= 1 && number <= kMaxItems) return absl::OkStatus();
  return InvalidField(field, "must have 1 to " + std::to_string(kMaxItems) + " " + field +
                                 ", not " + std::to_string(number));
}

}  // namespace

absl::StatusOr<Batch> DecodeGenerateBatch(const grpc::ByteBuffer& bytes,
                                          const GenerateResources* resources) {
  const auto request = std::make_shared<v1::GenerateBatchRequest>();
  RETURN_IF_ERROR(ParseMessage(bytes, request.get()));
  if (request->model().size() > kMaxModelBytes) {
    return InvalidField("model", "has more than " + std::to_string(kMaxModelBytes) + " bytes");
  }
  if (request->lines().empty()) {
    RETURN_IF_ERROR(CheckNumber("requests", request->requests_size()));
    for (v1::GenerateRequest& item : *request->mutable_requests()) {
      if (request->has_model() && !item.has_model()) item.set_model(request->model());
    }
    return Batch{.num_items = static_cast<size_t>(request->requests_size()),
                 .start = [resources, request](ItemPlace place) {
                   const auto index = static_cast<int>(place.index);
                   const auto item = std::make_shared<GenerateItem>(resources, std::move(place));
                   if (item->Join()) item->Run(request->requests(index));
                 }};
  }
  if (!request->requests().empty()) return InvalidField("lines", "are instead of requests");
  RETURN_IF_ERROR(CheckNumber("lines", request->lines_size()));
  return Batch{.num_items = static_cast<size_t>(request->lines_size()),
               .start = [resources, request](ItemPlace place) {
                 const auto index = static_cast<int>(place.index);
                 const auto item = std::make_shared<LineItem>(resources, std::move(place));
                 if (item->Join()) item->Read(request, index);
               }};
}

}  // namespace quire
