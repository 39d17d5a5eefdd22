// libedit does the editing; ctrl-C and ctrl-Z are keys while a line is edited, and signals
// otherwise.
#include "clients/cpp/chat/line_reader.h"

#include <fcntl.h>
#include <histedit.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>

namespace quire::cli {
namespace {

class StreamReader final : public LineReader {
 public:
  explicit StreamReader(std::istream& in) : in_(in) {}
  Outcome Read(std::string* line) override {
    return std::getline(in_, *line) ? Outcome::kLine : Outcome::kEnd;
  }

 private:
  std::istream& in_;
};

class TerminalReader final : public LineReader {
 public:
  TerminalReader(const std::string& prompt, const std::string& history_file)
      : prompt_(prompt), history_file_(history_file) {}
  ~TerminalReader() override {
    if (history_ != nullptr) history_end(history_);
    if (edit_ != nullptr) el_end(edit_);
  }
  TerminalReader(const TerminalReader&) = delete;

  bool Start() {
    edit_ = el_init("quire", stdin, stderr, stderr);
    history_ = history_init();
    if (edit_ == nullptr || history_ == nullptr) return false;
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, Prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);
    // While a line is edited, the terminal makes no signals of keys, so ctrl-C and
    // ctrl-Z arrive as keys.
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit_, EL_ADDFN, "quire-drop-line", "Drop the line", DropLine);
    el_set(edit_, EL_BIND, "^C", "quire-drop-line", nullptr);
    el_set(edit_, EL_ADDFN, "quire-suspend", "Suspend the process", Suspend);
    el_set(edit_, EL_BIND, "^Z", "quire-suspend", nullptr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_HIST, history, history_);
    if (!history_file_.empty()) history(history_, &event, H_LOAD, history_file_.c_str());
    return true;
  }

  Outcome Read(std::string* line) override {
    dropped_ = false;
    // Keys may come as soon as the prompt shows; el_gets prepares the terminal only after that.
    el_set(edit_, EL_PREP_TERM, 1);
    int length = 0;
    const char* text = el_gets(edit_, &length);
    if (text == nullptr || length <= 0) {
      std::fputc('\n', stderr);
      return Outcome::kEnd;
    }
    if (dropped_) return Outcome::kInterrupted;
    line->assign(text, static_cast<size_t>(length));
    while (!line->empty() && (line->back() == '\n' || line->back() == '\r')) line->pop_back();
    if (!line->empty()) Keep(*line);
    return Outcome::kLine;
  }

 private:
  static TerminalReader* Of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return static_cast<TerminalReader*>(self);
  }
  static char* Prompt(EditLine* edit) { return Of(edit)->prompt_.data(); }
  // Ends the line as the return key does; Read then drops it.
  static unsigned char DropLine(EditLine* edit, int) {
    Of(edit)->dropped_ = true;
    el_push(edit, "\n");
    return CC_NORM;
  }

  // Stops the process group, as the terminal does where ctrl-Z is a signal. Goes on with the same
  // line when the shell has continued it.
  static unsigned char Suspend(EditLine* edit, int) {
    el_set(edit, EL_PREP_TERM, 0);
    std::fputc('\n', stderr);
    kill(0, SIGTSTP);
    el_set(edit, EL_PREP_TERM, 1);
    return CC_REDISPLAY;
  }

  void Keep(const std::string& line) {
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
    if (history_file_.empty()) return;
    // Created here, so that it never exists with another mode.
    const int file = open(history_file_.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0) return;
    close(file);
    history(history_, &event, H_SAVE, history_file_.c_str());
  }

  std::string prompt_;
  const std::string history_file_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  bool dropped_ = false;
};

}  // namespace

std::unique_ptr<LineReader> ReadStream(std::istream& in) {
  return std::make_unique<StreamReader>(in);
}

std::unique_ptr<LineReader> EditLines(const std::string& prompt, const std::string& history_file) {
  auto reader = std::make_unique<TerminalReader>(prompt, history_file);
  if (!reader->Start()) return nullptr;
  return reader;
}

}  // namespace quire::cli
