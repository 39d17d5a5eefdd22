// Cost of structured output on the host, over a vocabulary of 128,000 tokens: compiling, the first
// mask of each state, and the masks after 20 documents of the same kind, along 60 documents that
// were not seen before. Checks that every document is accepted. Prints one JSON object per grammar:
// processor times in microseconds of one mask, of taking one token, and in milliseconds of
// compiling.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/grammar/compile_guide.h"
#include "kernels/check.h"
#include "nlohmann/json.hpp"

namespace quire {
namespace {

using Json = nlohmann::ordered_json;

// Processor time of this thread: what others do on a busy machine does not count.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static constexpr bool is_steady = true;
  static time_point now() {
    timespec time{};
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
    return time_point(std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec));
  }
};

constexpr size_t kVocab = 128000;
constexpr int kWarmUp = 20, kMeasured = 60;

double Microseconds(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

double Quantile(std::vector<double> values, double q) {
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

class Words {
 public:
  explicit Words(uint32_t seed) : random_(seed) {}
  unsigned Below(unsigned n) { return random_() % n; }
  std::string Word() {
    static const char* const parts[] = {"an", "er", "in", "st", "re", "on", "al", "ti", "en",
                                        "co", "de", "ra", "mo", "li", "qu", "e",  "s",  "ing"};
    std::string word;
    for (unsigned n = 1 + Below(4); n > 0; --n) word += parts[Below(std::size(parts))];
    return word;
  }
  std::string Sentence() {
    std::string text = Word();
    for (unsigned n = Below(12); n > 0; --n) text += (Below(6) == 0 ? ", " : " ") + Word();
    return text + (Below(8) == 0 ? " \xE4\xB8\x96\xC3\xA9" : ".");
  }

 private:
  std::mt19937 random_;
};

// Of the make of the tokenizers of today: bytes, runs of spaces, numbers, punctuation, characters
// of two and three bytes, and words, most of them with a space before.
std::shared_ptr<const GuideVocabulary> MakeVocabulary() {
  std::vector<std::string> tokens;
  std::set<std::string> seen;
  const auto add = [&](const std::string& token) {
    if (tokens.size() < kVocab - 1 && seen.insert(token).second) tokens.push_back(token);
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (int n = 2; n <= 128; ++n) add(std::string(n, ' '));
  for (int n = 1; n < 40; ++n) add("\n" + std::string(n, ' '));
  for (int n = 0; n < 1000; ++n) add(std::to_string(n));
  const std::string marks = "{}[]()\":,.;'-_=+*/\\<>!?#&|%$@~\n ";
  for (const char a : marks) {
    for (const char b : marks) {
      add({a, b});
      for (const char c : marks) {
        if ((a * 7 + b * 3 + c) % 5 == 0) add({a, b, c});
      }
    }
  }
  for (int c = 0; c < 12000; ++c) {
    const int code = 0x4E00 + c;
    add({static_cast<char>(0xE0 | code >> 12), static_cast<char>(0x80 | (code >> 6 & 0x3F)),
         static_cast<char>(0x80 | (code & 0x3F))});
  }
  for (int c = 0x80; c < 0x800; ++c) {
    add({static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))});
  }
  Words words(1);
  while (tokens.size() < kVocab - 1) {
    const std::string word = words.Word();
    add(words.Below(3) > 0 ? " " + word : word);
    if (words.Below(20) == 0) add("\"" + word);
    if (words.Below(20) == 0) add(word + (words.Below(2) == 0 ? "\":" : "\","));
    add(word + std::string(1, static_cast<char>('a' + words.Below(26))));
  }
  tokens.emplace_back();
  return GuideVocabulary::Make(std::move(tokens), {kVocab - 1}).value();
}

Json AnyValue(Words* words, int depth) {
  const unsigned kind = words->Below(depth < 4 ? 8 : 5);
  if (kind == 0) return words->Below(100000) * 0.25;
  if (kind == 1) return words->Below(2) == 0;
  if (kind < 5) return words->Sentence();
  Json out = kind < 7 ? Json::object() : Json::array();
  for (unsigned n = words->Below(5); n > 0; --n) {
    if (kind < 7) {
      out[words->Word()] = AnyValue(words, depth + 1);
    } else {
      out.push_back(AnyValue(words, depth + 1));
    }
  }
  return out;
}

struct Workload {
  std::string name;
  GrammarSource source;
  std::function<std::string(Words*)> document;
};

Workload AnyObject() {
  return {"any JSON object", {GrammarKind::kJsonObject}, [](Words* words) {
            Json out = Json::object();
            for (int i = 0; i < 8; ++i) out[words->Word()] = AnyValue(words, 1);
            return out.dump(words->Below(2) == 0 ? -1 : 2);
          }};
}

// Strings of every kind, numbers, enumerations and lists, a third of the members optional.
Workload HundredFields() {
  Json properties = Json::object(), required = Json::array();
  for (int i = 0; i < 100; ++i) {
    const std::string name = "field_" + std::to_string(i);
    const Json kinds[] = {{{"type", "string"}},
                          {{"type", "string"}, {"maxLength", 200}},
                          {{"type", "integer"}, {"minimum", 0}, {"maximum", 99999}},
                          {{"enum", {"red", "green", "blue", nullptr}}},
                          {{"type", "array"}, {"items", {{"type", "number"}}}, {"maxItems", 5}},
                          {{"type", "string"}, {"format", "date-time"}}};
    properties[name] = kinds[i % 6];
    if (i % 3 != 0) required.push_back(name);
  }
  const Json schema = {{"type", "object"}, {"properties", properties}, {"required", required}};
  return {"schema of 100 fields", {GrammarKind::kJsonSchema, schema.dump()}, [](Words* words) {
            Json out = Json::object();
            for (int i = 0; i < 100; ++i) {
              if (i % 3 == 0 && words->Below(2) == 0) continue;
              const Json values[] = {
                  words->Sentence(),
                  words->Sentence(),
                  words->Below(100000),
                  words->Below(2) == 0 ? "red" : "blue",
                  Json::array({words->Below(100), 1.5}),
                  "2026-03-1" + std::to_string(words->Below(10)) + "T12:34:56.789Z"};
              out["field_" + std::to_string(i)] = values[i % 6];
            }
            return out.dump();
          }};
}

Workload Expression() {
  const std::string grammar =
      "root ::= sum\nsum ::= product ([+-] product)*\nproduct ::= value ([*/] value)*\n"
      "value ::= [0-9]{1,9} | [a-z]+ \"(\" sum (\", \" sum)* \")\" | \"(\" sum \")\"";
  static const std::function<std::string(Words*, int)> sum = [](Words* words, int depth) {
    std::string text;
    for (unsigned n = 1 + words->Below(3); n > 0; --n) {
      if (!text.empty()) text += "+-*/"[words->Below(4)];
      const unsigned kind = words->Below(depth < 5 ? 3 : 1);
      if (kind == 0) text += std::to_string(words->Below(100000));
      if (kind == 1) text += words->Word() + "(" + sum(words, depth + 1) + ")";
      if (kind == 2) text += "(" + sum(words, depth + 1) + ")";
    }
    return text;
  };
  return {"GBNF of expressions", {GrammarKind::kGbnf, grammar}, [](Words* words) {
            std::string text = "0";
            for (int i = 0; i < 10; ++i) text += "+" + sum(words, 0);
            return text;
          }};
}

Workload Report() {
  return {"regex of a report",
          {GrammarKind::kRegex, "# [A-Z][a-z ]{3,60}\\n(- [^\\n]{1,200}\\n){1,30}"},
          [](Words* words) {
            std::string text = "# The report\n";
            for (int i = 0; i < 12; ++i) text += "- " + words->Sentence() + "\n";
            return text;
          }};
}

struct Times {
  std::vector<double> masks, accepts;
};

// Writes a document with the longest token at each place, and times each mask before it.
void Run(const CompiledGuide& guide, const GuideVocabulary& vocabulary, std::string_view text,
         Times* times) {
  std::vector<uint32_t> words(vocabulary.mask_words());
  const auto row = guide.Start();
  while (!text.empty()) {
    const int32_t token = vocabulary.LongestPrefix(text);
    const auto begin = Clock::now();
    row->FillMask(words);
    times->masks.push_back(Microseconds(begin));
    CHECK((words[token / 32] >> (token % 32) & 1) != 0);
    const auto filled = Clock::now();
    CHECK(row->Accept(token));
    times->accepts.push_back(Microseconds(filled));
    text.remove_prefix(vocabulary.bytes(token).size());
  }
  CHECK(row->CanEnd());
}

void Measure(const Workload& workload, const std::shared_ptr<const GuideVocabulary>& vocabulary) {
  std::vector<double> compiles;
  std::shared_ptr<const CompiledGuide> guide;
  for (int i = 0; i < 5; ++i) {
    const auto begin = Clock::now();
    guide = CompileGuide(workload.source, vocabulary).value();
    compiles.push_back(Microseconds(begin) / 1000);
  }
  Times cold, warm;
  for (int i = 0; i < kWarmUp + kMeasured; ++i) {
    Words words(static_cast<uint32_t>(100 + i));
    Run(*guide, *vocabulary, workload.document(&words), i < kWarmUp ? &cold : &warm);
  }
  const Json line = {{"grammar", workload.name},
                     {"compile_ms_p50", Quantile(compiles, 0.5)},
                     {"first_mask_us_max", Quantile(cold.masks, 1)},
                     {"masks", warm.masks.size()},
                     {"mask_us_p50", Quantile(warm.masks, 0.5)},
                     {"mask_us_p99", Quantile(warm.masks, 0.99)},
                     {"mask_us_max", Quantile(warm.masks, 1)},
                     {"accept_us_p50", Quantile(warm.accepts, 0.5)},
                     {"accept_us_p99", Quantile(warm.accepts, 0.99)},
                     {"bytes", guide->bytes()}};
  std::printf("%s\n", line.dump().c_str());
}

void TimeRefusals(const std::shared_ptr<const GuideVocabulary>& vocabulary) {
  std::string wide = "root ::= \"a\"";
  for (int i = 0; i < 120000; ++i) wide += "|\"" + std::to_string(i) + "\"";
  for (const GrammarSource& source :
       {GrammarSource{GrammarKind::kRegex, "(a|b)*a(a|b){20}c|(x|y)*x(x|y){25}"},
        GrammarSource{GrammarKind::kRegex, "((((a?){1000}){1000}){1000}){1000}"},
        GrammarSource{GrammarKind::kRegex, "((((){1000}){1000}){1000}){1000}"},
        GrammarSource{GrammarKind::kRegex, "(ab?){100000}"},
        GrammarSource{GrammarKind::kRegex, std::string(1 << 20, 'a')},
        GrammarSource{GrammarKind::kGbnf, wide}}) {
    const auto begin = Clock::now();
    const bool ok = CompileGuide(source, vocabulary).ok();
    const Json line = {{"hostile", source.text.substr(0, 40)},
                       {"refused", !ok},
                       {"ms", Microseconds(begin) / 1000}};
    std::printf("%s\n", line.dump().c_str());
  }
}

// Grammars by which a text may be at very many places: the slowest mask and token of 30.
void TimeAmbiguity(const std::shared_ptr<const GuideVocabulary>& vocabulary) {
  for (const char* grammar : {"root ::= ws \"{\" ws root? \"}\"\nws ::= ([ \\t\\n] ws)?{6}",
                              "root ::= ([^x] root?)+ \"y\"? \"x\"",
                              "root ::= [a-z ] root \"b\" | [a-z ] root \"c\" | [a-z]"}) {
    const auto guide = CompileGuide({GrammarKind::kGbnf, grammar}, vocabulary).value();
    const auto row = guide->Start();
    std::vector<uint32_t> words(vocabulary->mask_words());
    std::mt19937 random(4);
    double mask = 0, accept = 0;
    for (int i = 0; i < 30; ++i) {
      const auto begin = Clock::now();
      row->FillMask(words);
      mask = std::max(mask, Microseconds(begin));
      int32_t token = 0;
      do {
        token = static_cast<int32_t>(random() % kVocab);
      } while ((words[token / 32] >> (token % 32) & 1) == 0);
      const auto filled = Clock::now();
      CHECK(row->Accept(token));
      accept = std::max(accept, Microseconds(filled));
    }
    const Json line = {{"ambiguous", grammar}, {"mask_us_max", mask}, {"accept_us_max", accept}};
    std::printf("%s\n", line.dump().c_str());
  }
}

}  // namespace
}  // namespace quire

int main() {
  const auto begin = quire::Clock::now();
  const auto vocabulary = quire::MakeVocabulary();
  std::printf("{\"vocabulary_ms\": %.1f}\n", quire::Microseconds(begin) / 1000);
  for (const quire::Workload& workload :
       {quire::AnyObject(), quire::HundredFields(), quire::Expression(), quire::Report()}) {
    quire::Measure(workload, vocabulary);
  }
  quire::TimeRefusals(vocabulary);
  quire::TimeAmbiguity(vocabulary);
  return 0;
}
