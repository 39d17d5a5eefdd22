// DecodeStructure and CheckBesideStructure: every form of a structure, and what is refused.
#include "server/structured/structured_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quire/v1/inference.pb.h"
#include "server/call/status_codec.h"

namespace quire {
namespace {

using testing::ElementsAre;

TEST(StructuredCodecTest, EveryFormBecomesAGrammar) {
  v1::StructuredOutput in;
  in.set_json_schema("{}");
  auto out = DecodeStructure(in);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->source.kind, GrammarKind::kJsonSchema);
  EXPECT_EQ(out->source.text, "{}");
  EXPECT_EQ(out->field, "structured_output.json_schema");
  in.set_json_object(true);
  EXPECT_EQ(DecodeStructure(in)->source.kind, GrammarKind::kJsonObject);
  in.set_regex("a+");
  EXPECT_EQ(DecodeStructure(in)->source.kind, GrammarKind::kRegex);
  EXPECT_EQ(DecodeStructure(in)->source.text, "a+");
  in.set_grammar("root ::= \"a\"");
  EXPECT_EQ(DecodeStructure(in)->source.kind, GrammarKind::kGbnf);
  in.set_lark("start: \"a\"");
  EXPECT_EQ(DecodeStructure(in)->source.kind, GrammarKind::kLark);
  EXPECT_EQ(DecodeStructure(in)->field, "structured_output.lark");
  in.mutable_choice()->add_texts("yes");
  in.mutable_choice()->add_texts("no");
  out = DecodeStructure(in);
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->source.kind, GrammarKind::kChoice);
  EXPECT_THAT(out->source.choices, ElementsAre("yes", "no"));
}

TEST(StructuredCodecTest, ADefinitionTellsTheNotation) {
  for (const char* gbnf : {"root ::= \"a\"", "# note\nroot\n ::= \"#\"", "root ::= \"//\""}) {
    EXPECT_EQ(GrammarKindOf(gbnf), GrammarKind::kGbnf) << gbnf;
  }
  for (const char* lark : {"start: \"a\"", "", "// root ::= a\nstart: \"a\" # ::=", "nonsense"}) {
    EXPECT_EQ(GrammarKindOf(lark), GrammarKind::kLark) << lark;
  }
}

TEST(StructuredCodecTest, RefusesWhatIsNoStructure) {
  v1::StructuredOutput in;
  EXPECT_EQ(FieldOf(DecodeStructure(in).status()), "structured_output");
  in.set_json_object(false);
  EXPECT_EQ(FieldOf(DecodeStructure(in).status()), "structured_output.json_object");
  in.set_regex("");
  EXPECT_EQ(FieldOf(DecodeStructure(in).status()), "structured_output.regex");
  in.set_grammar("");
  EXPECT_EQ(FieldOf(DecodeStructure(in).status()), "structured_output.grammar");
  in.set_lark("");
  EXPECT_EQ(FieldOf(DecodeStructure(in).status()), "structured_output.lark");
  in.set_json_schema("");
  EXPECT_EQ(FieldOf(DecodeStructure(in).status()), "structured_output.json_schema");
  in.mutable_choice();
  EXPECT_EQ(FieldOf(DecodeStructure(in).status()), "structured_output.choice.texts");
  in.mutable_choice()->add_texts("a");
  in.mutable_choice()->add_texts("");
  EXPECT_THAT(DecodeStructure(in).status().ToString(), testing::HasSubstr("index 1 is empty"));
  in.mutable_choice()->clear_texts();
  for (int i = 0; i < 1025; ++i) in.mutable_choice()->add_texts("a");
  EXPECT_THAT(DecodeStructure(in).status().ToString(), testing::HasSubstr("not 1025"));
}

TEST(StructuredCodecTest, RefusesWhatContradictsAnEnd) {
  const Structure structure{.field = "structured_output.regex"};
  SamplingParams sampling;
  EXPECT_TRUE(CheckBesideStructure(structure, sampling).ok());
  sampling.ignore_eos = true;
  EXPECT_EQ(FieldOf(CheckBesideStructure(structure, sampling)), "structured_output.regex");
  sampling.ignore_eos = false;
  sampling.min_tokens = 1;
  EXPECT_THAT(CheckBesideStructure(structure, sampling).ToString(),
              testing::HasSubstr("min_tokens"));
}

}  // namespace
}  // namespace quire
