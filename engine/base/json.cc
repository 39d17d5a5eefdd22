// The guard around nlohmann-json: reads SAX events, so that duplicate keys and depth are seen while
// parsing and nothing recurses.
#include "engine/base/json.h"

#include <sys/stat.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/file_error.h"
#include "engine/base/json_walk.h"

namespace quire {
namespace {

using nlohmann::json;

// Walks the text and records how far the lexer has read: SAX events carry no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** reached) : at_(at), reached_(reached) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *reached_ = ++at_;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  const char** reached_;
};

// Counts the events and hands them on.
class EventGuard {
 public:
  EventGuard(const JsonLimits& limits, const char* begin, const char* const* reached,
             JsonSink* sink)
      : limits_(limits), begin_(begin), reached_(reached), sink_(*sink) {}

  bool null() { return Add(nullptr); }
  bool boolean(bool v) { return Add(v); }
  bool number_integer(json::number_integer_t v) { return Add(v); }
  bool number_unsigned(json::number_unsigned_t v) { return Add(v); }
  bool number_float(json::number_float_t v, const std::string& text) {
    const bool integer = text.find_first_of(".eE") == std::string::npos;
    return integer ? Count() && Passes(sink_.LargeInteger(v)) : Add(v);
  }
  bool string(std::string& v) { return Add(std::move(v)); }
  bool binary(json::binary_t&) { return Fail("binary value"); }
  bool start_object(size_t) { return Open(/*object=*/true); }
  bool end_object() { return Close(); }
  bool start_array(size_t) { return Open(/*object=*/false); }
  bool end_array() { return Close(); }
  bool key(std::string& name) { return Count() && Passes(sink_.Key(std::move(name))); }

  template <class Exception>
  bool parse_error(size_t, const std::string&, const Exception& error) {
    std::string reason = error.what();
    // "[json.exception...] parse error at line 1, column 2: REASON; last read: 'TEXT'; expected X":
    // the text read may be long or not UTF-8, so only REASON is kept.
    if (size_t at = reason.find("] "); at != std::string::npos) reason.erase(0, at + 2);
    if (size_t at = reason.find("column "); at != std::string::npos) {
      at = reason.find(": ", at);
      if (at != std::string::npos) reason.erase(0, at + 2);
    }
    if (size_t at = reason.find("; last read"); at != std::string::npos) reason.erase(at);
    return Fail(reason.starts_with("number overflow") ? "number out of range" : reason);
  }

  const std::string& fault() const { return fault_; }
  size_t fault_offset() const { return fault_offset_; }

 private:
  // False beyond max_values.
  bool Count() {
    if (++num_values_ <= limits_.max_values) return true;
    return Fail(absl::StrCat("more than ", limits_.max_values, " keys and values"));
  }
  bool Passes(const char* reason) { return reason == nullptr || Fail(reason); }
  bool Add(json&& value) { return Count() && Passes(sink_.Scalar(std::move(value))); }
  bool Open(bool object) {
    if (depth_ >= limits_.max_depth) {
      return Fail(absl::StrCat("nested deeper than ", limits_.max_depth, " levels"));
    }
    ++depth_;
    return Count() && Passes(sink_.Open(object));
  }
  bool Close() {
    --depth_;
    sink_.Close();
    return true;
  }
  bool Fail(std::string reason) {
    fault_ = std::move(reason);
    fault_offset_ = static_cast<size_t>(*reached_ - begin_);
    return false;
  }

  const JsonLimits limits_;
  const char* const begin_;
  const char* const* const reached_;
  JsonSink& sink_;

  size_t num_values_ = 0;
  int depth_ = 0;
  std::string fault_;
  size_t fault_offset_ = 0;
};

// Builds the value. The innermost open container is open_.back(); outer containers do not change
// while it is open, so the pointers stay valid.
class ValueBuilder : public JsonSink {
 public:
  const char* Scalar(json&& value) override {
    Place(std::move(value));
    return nullptr;
  }
  const char* Open(bool object) override {
    open_.push_back(Place(object ? json::object() : json::array()));
    return nullptr;
  }
  const char* Key(std::string&& name) override {
    auto [at, inserted] =
        open_.back()->get_ref<json::object_t&>().emplace(std::move(name), nullptr);
    // A key may be long or private: the offset alone finds the place.
    if (!inserted) return "duplicate key";
    member_ = &at->second;
    return nullptr;
  }
  void Close() override { open_.pop_back(); }

  json Take() { return std::move(root_); }

 private:
  json* Place(json&& value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      return &open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
    }
    *member_ = std::move(value);
    return member_;
  }

  json root_;
  std::vector<json*> open_;
  json* member_ = nullptr;  // value slot of the key read last
};

absl::Status Fault(const std::string& what, size_t offset, const std::string& reason) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": byte ", offset, ": ", reason));
}

}  // namespace

absl::Status WalkJson(std::string_view text, const std::string& what, const JsonLimits& limits,
                      JsonSink* sink) {
  if (text.size() > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": ", text.size(), " bytes of JSON, the limit is ", limits.max_bytes));
  }
  // The lexer treats a zero byte as the end of the text and silently skips a byte order mark.
  if (size_t at = text.find('\0'); at != std::string_view::npos) {
    return Fault(what, at, "zero byte");
  }
  if (text.starts_with("\xEF\xBB\xBF")) return Fault(what, 0, "byte order mark");

  const char* reached = text.data();
  EventGuard guard(limits, text.data(), &reached, sink);
  CountingIterator begin(text.data(), &reached);
  CountingIterator end(text.data() + text.size(), &reached);
  if (json::sax_parse(begin, end, &guard)) return absl::OkStatus();
  return Fault(what, guard.fault_offset(), guard.fault());
}

absl::StatusOr<json> ParseJson(std::string_view text, const std::string& what,
                               const JsonLimits& limits) {
  ValueBuilder builder;
  const absl::Status status = WalkJson(text, what, limits, &builder);
  if (!status.ok()) return status;
  return builder.Take();
}

absl::StatusOr<json> ReadJsonFile(const std::string& path, const JsonLimits& limits) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return FileError(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  if (static_cast<size_t>(info.st_size) > limits.max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", info.st_size, " bytes of JSON, the limit is ", limits.max_bytes));
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file && errno != 0) return FileError(path, errno);
  std::string text(static_cast<size_t>(info.st_size), '\0');
  if (!file.read(text.data(), info.st_size)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  }
  return ParseJson(text, path, limits);
}

}  // namespace quire
