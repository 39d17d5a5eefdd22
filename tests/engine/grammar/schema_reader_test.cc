// JSON Schemas against Python's jsonschema, texts drawn from masks, and what is refused.
// Covers engine/grammar/readers/json_rules.cc, engine/grammar/readers/schema_merge.cc,
// engine/grammar/readers/schema_strings.cc
#include "engine/grammar/readers/schema_reader.h"

#include "absl/strings/str_cat.h"
#include "tests/engine/grammar/text_cases.h"

namespace quire {
namespace {

using testing::HasSubstr;

GrammarSource Schema(const std::string& text) { return {GrammarKind::kJsonSchema, text}; }
std::string SchemaError(const std::string& text) { return CompileError(Schema(text)); }

TEST(SchemaReaderTest, AgreesWithJsonschema) {
  const auto cases =
      ReadJsonFile(QUIRE_SOURCE_DIR "/tests/testdata/grammar/schema_cases.json").value();
  EXPECT_GT(cases.size(), 100);
  EXPECT_EQ(Differences(cases, ByteVocabulary()), 0);
}

// Every text that masks allow parses; make_schema_cases.py --check validates such texts as well.
TEST(SchemaReaderTest, WalksThroughMasksParse) {
  const auto vocabulary = ByteVocabulary({"\": ", "\", \"", "{\"", "\"}", "[[", "]]}", "\\u00",
                                          "e-", "12", "\xE2\x82", "\n  ", "true", "nu"});
  std::mt19937 random(5);
  for (const GrammarSource& source :
       {GrammarSource{GrammarKind::kJsonObject}, Schema("true"),
        Schema(R"({"type": "object", "properties": {"n": {"type": "number"},
                   "s": {"type": "string", "maxLength": 40}}, "additionalProperties": true})")}) {
    const auto guide = Compile(source, vocabulary);
    for (int i = 0; i < 300; ++i) {
      const std::string text = RandomText(*guide, *vocabulary, 10 + random() % 60, &random);
      const auto parsed = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
      EXPECT_FALSE(parsed.is_discarded()) << text;
      EXPECT_TRUE(parsed.is_object() || source.kind != GrammarKind::kJsonObject) << text;
    }
  }
}

TEST(SchemaReaderTest, Numbers) {
  for (const auto& [schema, min, max] : std::vector<std::tuple<std::string, int, int>>{
           {R"({"type": "integer", "minimum": -105, "exclusiveMaximum": 1000})", -105, 999},
           {R"({"type": "integer", "minimum": 0.5, "maximum": 19.5})", 1, 19},
           {R"({"type": "number", "exclusiveMinimum": -1, "maximum": 207})", 0, 207}}) {
    const auto guide = Compile(Schema(schema));
    for (int number = -1200; number <= 1200; ++number) {
      EXPECT_EQ(Accepts(*guide, std::to_string(number)), number >= min && number <= max)
          << schema << " " << number;
    }
  }
  const auto number = Compile(Schema(R"({"minimum": -2, "exclusiveMaximum": 3})"));
  for (const char* inside : {"-2", "-2.0", "-1.999", "-0.5", "0", "2.9999"}) {
    EXPECT_TRUE(Accepts(*number, inside)) << inside;
  }
  for (const char* outside : {"-2.01", "3", "3.0", "3.1", "01", "1.", "1e0", "+1"}) {
    EXPECT_FALSE(Accepts(*number, outside)) << outside;
  }
}

// Generators of schemas write the bounds of their language's integers and numbers.
TEST(SchemaReaderTest, BoundsThatNoNumberReachesExcludeNothing) {
  const auto safe = Compile(
      Schema(R"({"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991})"));
  for (const char* inside : {"0", "-17", "9007199254740991", "-9007199254740991"}) {
    EXPECT_TRUE(Accepts(*safe, inside)) << inside;
  }
  for (const char* outside : {"9007199254740992", "-9007199254740992", "9999999999999999"}) {
    EXPECT_FALSE(Accepts(*safe, outside)) << outside;
  }
  for (const char* schema :
       {R"({"type": "integer", "minimum": -9223372036854775808, "maximum": 9223372036854775807})",
        R"({"type": "integer", "minimum": -1e300, "exclusiveMaximum": 18446744073709551615})",
        R"({"type": "number", "minimum": -1.7976931348623157e308, "maximum": 3.4e38})"}) {
    const auto guide = Compile(Schema(schema));
    for (const char* inside : {"0", "9999999999999999", "-9999999999999999"}) {
      EXPECT_TRUE(Accepts(*guide, inside)) << schema << " " << inside;
    }
  }
  const auto doubles = Compile(Schema(R"({"type": "number", "maximum": 1.7976931348623157e308})"));
  EXPECT_TRUE(Accepts(*doubles, "9e99"));
  const auto floats = Compile(Schema(R"({"type": "number", "maximum": 3.4e38})"));
  EXPECT_FALSE(Accepts(*floats, "9e99"));
  const auto below =
      Compile(Schema(R"({"type": "integer", "exclusiveMaximum": 9999999999999999})"));
  EXPECT_TRUE(Accepts(*below, "9999999999999998"));
  EXPECT_FALSE(Accepts(*below, "9999999999999999"));
  EXPECT_THAT(SchemaError(R"({"type": "integer", "exclusiveMinimum": 9999999999999999})"),
              HasSubstr("#/exclusiveMinimum"));
}

// zod writes both.
TEST(SchemaReaderTest, AFormatBesideAPatternRestrictsToo) {
  const auto uuid = Compile(Schema(R"({"type": "string", "format": "uuid", "maxLength": 36,
      "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-"})"));
  EXPECT_TRUE(Accepts(*uuid, R"("123e4567-e89b-12d3-a456-426614174000")"));
  EXPECT_FALSE(Accepts(*uuid, R"("123e4567-e89b-92d3-a456-426614174000")")) << "no such version";
  EXPECT_FALSE(Accepts(*uuid, R"("123e4567-e89b-12d3-a456-4266141740")")) << "too short";
  const auto own = Compile(Schema(R"({"format": "regex", "pattern": "^a*$", "maxLength": 2})"));
  EXPECT_TRUE(Accepts(*own, "\"aa\""));
  EXPECT_FALSE(Accepts(*own, "\"aaa\""));
  EXPECT_FALSE(Accepts(*own, "\"b\""));
}

// Pydantic writes the discriminator, and zod the names of a record.
TEST(SchemaReaderTest, KeywordsThatRestrictNothingPass) {
  const auto union_of = Compile(Schema(R"({"discriminator": {"propertyName": "kind",
      "mapping": {"a": "#/$defs/a", "b": "#/$defs/b"}},
      "oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}],
      "$defs": {"a": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                "b": {"properties": {"kind": {"const": "b"}}, "required": ["kind"]}}})"));
  EXPECT_TRUE(Accepts(*union_of, R"({"kind": "b"})"));
  EXPECT_FALSE(Accepts(*union_of, R"({"kind": "c"})"));
  for (const char* names : {"true", R"({"type": "string", "title": "Key"})"}) {
    const auto record = Compile(Schema(
        absl::StrCat(R"({"type": "object", "propertyNames": )", names, R"(, "additionalProperties":
        {"type": "integer"}})")));
    EXPECT_TRUE(Accepts(*record, R"({"x": 1})"));
    EXPECT_FALSE(Accepts(*record, R"({"x": "y"})"));
  }
}

TEST(SchemaReaderTest, AReferenceIsAFragmentOfAUri) {
  const auto guide = Compile(Schema(R"({"$ref": "#/definitions/Box%3Cstring%3e%2Fa~1b%20%ZZ",
      "definitions": {"Box<string>": {"a/b %ZZ": {"type": "null"}}}})"));
  EXPECT_TRUE(Accepts(*guide, "null"));
  EXPECT_FALSE(Accepts(*guide, "1"));
}

TEST(SchemaReaderTest, RequiredMembersNeedNoDeclaration) {
  const auto any = Compile(Schema(R"({"properties": {"a": {"type": "null"}},
                                      "required": ["a", "b"]})"));
  EXPECT_TRUE(Accepts(*any, R"({"a": null, "b": {"c": [1]}})"));
  EXPECT_FALSE(Accepts(*any, R"({"a": null})"));
  EXPECT_FALSE(Accepts(*any, R"({"a": null, "b": 1, "c": 1})"));
  const auto typed = Compile(Schema(R"({"properties": {"a": {"type": "null"}}, "required": ["b"],
                                        "additionalProperties": {"type": "integer"}})"));
  EXPECT_TRUE(Accepts(*typed, R"({"b": 1})"));
  EXPECT_FALSE(Accepts(*typed, R"({"b": null})"));
}

// JSON Schema counts numbers without a fraction as integers, however large.
TEST(SchemaReaderTest, LargeNumbersOfAListAreIntegers) {
  const auto guide = Compile(Schema(R"({"type": "integer", "enum": [1, 2e45, -3e19, 0.5]})"));
  for (const char* integer : {"1", "2e+45", "-3e+19"}) EXPECT_TRUE(Accepts(*guide, integer));
  EXPECT_FALSE(Accepts(*guide, "0.5"));
}

TEST(SchemaReaderTest, WhitespaceIsBounded) {
  const auto guide = Compile(Schema(R"({"type": "array", "items": {"type": "null"}})"));
  EXPECT_TRUE(Accepts(*guide, "[\n\t null,\n" + std::string(32, ' ') + "null]"));
  EXPECT_FALSE(Accepts(*guide, "[\n" + std::string(33, ' ') + "null]"));
  for (const char* text : {" []", "[] ", "[  ]]", "[null ,null]", "[\n\nnull]", "[\r\nnull]"}) {
    EXPECT_FALSE(Accepts(*guide, text)) << text;
  }
}

TEST(SchemaReaderTest, OneOfNeedsBranchesThatDiffer) {
  const auto guide = Compile(Schema(R"({"oneOf": [
      {"properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind"]},
      {"$ref": "#/$defs/b"}, {"type": ["null", "boolean"]}],
      "$defs": {"b": {"properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"]}}})"));
  EXPECT_TRUE(Accepts(*guide, R"({"kind": "a", "x": 1})"));
  EXPECT_TRUE(Accepts(*guide, R"({"kind": "c"})"));
  EXPECT_FALSE(Accepts(*guide, R"({"kind": "c", "x": 1})"));
  EXPECT_TRUE(Accepts(*guide, "null"));
  EXPECT_THAT(SchemaError(R"({"oneOf": [{"type": "integer"}, {"type": "number"}]})"),
              HasSubstr("#/oneOf: branches 0 and 1 may have a document in common"));
}

TEST(SchemaReaderTest, CombinesSchemas) {
  const auto guide = Compile(Schema(R"({"allOf": [{"$ref": "#/$defs/named"},
      {"properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["age"]}],
      "properties": {"age": {"maximum": 9}},
      "$defs": {"named": {"type": "object", "properties": {"name": {"type": "string"}}}}})"));
  EXPECT_TRUE(Accepts(*guide, R"({"age": 9, "name": ""})"));
  EXPECT_FALSE(Accepts(*guide, R"({"age": 10})"));
  EXPECT_FALSE(Accepts(*guide, R"({"name": ""})"));
  const auto nullable = Compile(Schema(R"({"type": "string", "maxLength": 1, "nullable": true})"));
  EXPECT_TRUE(Accepts(*nullable, "null"));
  EXPECT_FALSE(Accepts(*nullable, "\"ab\""));
}

// Null is allowed by a combination if every part allows it.
TEST(SchemaReaderTest, CombinesNullable) {
  struct Case {
    const char* schema;
    bool null;
  };
  for (const Case& c : {
           Case{R"({"type": "string", "anyOf": [{"minLength": 1, "nullable": true}]})", false},
           Case{R"({"type": "string", "allOf": [{"type": "string", "nullable": true}]})", false},
           Case{R"({"enum": ["a"], "allOf": [{"type": "string", "nullable": true}]})", false},
           Case{R"({"type": ["string", "null"], "allOf": [{"type": "string", "nullable": true}]})",
                true},
           Case{R"({"allOf": [{"type": ["string", "null"], "nullable": true}]})", true},
           Case{R"({"allOf": [{"type": "string", "nullable": true},
                              {"type": "string", "maxLength": 1, "nullable": true}]})",
                true},
           Case{R"({"allOf": [{"type": "string", "nullable": true, "enum": ["a", "b"]},
                              {"enum": ["a", null]}]})",
                true},
           Case{R"({"allOf": [{"type": "string", "nullable": true},
                              {"type": "string", "nullable": false}]})",
                false},
           Case{R"({"allOf": [{"type": "string", "nullable": true}, {"description": "any"}]})",
                true},
       }) {
    const auto guide = Compile(Schema(c.schema));
    EXPECT_EQ(Accepts(*guide, "null"), c.null) << c.schema;
    EXPECT_TRUE(Accepts(*guide, "\"a\"")) << c.schema;
    EXPECT_FALSE(Accepts(*guide, "1")) << c.schema;
  }
}

// A keyword about all that its own schema leaves open is about what the other schema declares, too.
TEST(SchemaReaderTest, CombinesNothingThatReachesIntoTheOther) {
  EXPECT_THAT(SchemaError(R"({"allOf": [{"properties": {"foo": {}}}],
      "additionalProperties": {"type": "boolean"}})"),
              HasSubstr("additionalProperties is about the other schema's properties"));
  EXPECT_THAT(SchemaError(R"({"allOf": [{"properties": {"foo": {}}}],
      "additionalProperties": false})"),
              HasSubstr("additionalProperties is about the other schema's properties"));
  EXPECT_THAT(
      SchemaError(R"({"allOf": [{"prefixItems": [{"minimum": 3}]}], "items": {"minimum": 5}})"),
      HasSubstr("items is about the other schema's prefixItems"));
  EXPECT_TRUE(Accepts(*Compile(Schema(R"({"allOf": [{"properties": {"foo": {}}}],
      "properties": {"foo": {"type": "null"}}, "additionalProperties": {"type": "boolean"}})")),
                      R"({"foo": null, "bar": true})"));
}

// As in calls of many tools: all branches are places until the constant tells them apart.
TEST(SchemaReaderTest, WideUnions) {
  nlohmann::json branches;
  for (int i = 0; i < 200; ++i) {
    branches.push_back({{"type", "object"},
                        {"properties",
                         {{"a", {{"const", absl::StrCat("tool", i)}}},
                          {"b", {{"type", i % 2 == 0 ? "integer" : "string"}}}}},
                        {"required", {"a", "b"}}});
  }
  const auto vocabulary = ByteVocabulary({"{\"a\": \"tool", "\", \""});
  const auto guide = Compile(Schema(nlohmann::json({{"oneOf", branches}}).dump()), vocabulary);
  for (int i = 0; i < 200; ++i) {
    EXPECT_EQ(Accepts(*guide, absl::StrCat(R"({"a": "tool)", i, R"(", "b": 1})")), i % 2 == 0);
    EXPECT_EQ(Accepts(*guide, absl::StrCat(R"({"a": "tool)", i, R"(", "b": "x"})")), i % 2 != 0);
  }
  const auto row = guide->Start();
  ASSERT_TRUE(row->Accept(256));
  EXPECT_THAT(Allowed(row.get(), *vocabulary),
              testing::ElementsAre('0', '1', '2', '3', '4', '5', '6', '7', '8', '9'));
}

TEST(SchemaReaderTest, RefusesByNameAndPath) {
  EXPECT_THAT(SchemaError(R"({"properties": {"a": {"not": {}}}})"),
              HasSubstr("schema: #/properties/a/not: this keyword is not supported"));
  for (const char* keyword : {"if", "patternProperties", "uniqueItems", "contains", "multipleOf",
                              "propertyNames", "dependentRequired", "unevaluatedProperties"}) {
    EXPECT_THAT(SchemaError(absl::StrCat("{\"", keyword, "\": 1}")), HasSubstr(keyword));
  }
  EXPECT_THAT(SchemaError("{"), HasSubstr("schema: byte 1"));
  EXPECT_THAT(SchemaError(R"({"a": 1, "a": 2})"), HasSubstr("duplicate key"));
  EXPECT_THAT(SchemaError("3"), HasSubstr("#: must be an object or a boolean"));
  EXPECT_THAT(SchemaError(R"({"type": "text"})"), HasSubstr("#/type: there is no type text"));
  EXPECT_THAT(SchemaError(R"({"type": "string", "format": "regex"})"), HasSubstr("#/format"));
  EXPECT_THAT(SchemaError(R"_({"type": "string", "pattern": "(?=a)"})_"),
              HasSubstr("schema: #/pattern: byte 2: lookaround"));
  EXPECT_THAT(SchemaError(R"({"minLength": 2, "maxLength": 1})"), HasSubstr("#/minLength"));
  EXPECT_THAT(SchemaError(R"({"type": "string", "maxLength": -1})"), HasSubstr("#/maxLength"));
  EXPECT_THAT(SchemaError(R"({"type": "number", "minimum": 0.5})"), HasSubstr("#/minimum"));
  EXPECT_THAT(SchemaError(R"({"type": "integer", "minimum": 1e300})"), HasSubstr("#/minimum"));
  EXPECT_THAT(SchemaError(R"({"properties": {}, "propertyNames": {"maxLength": 3}})"),
              HasSubstr("#/propertyNames: this keyword is not supported"));
  EXPECT_THAT(SchemaError(R"({"properties": {"a": {}}, "required": ["a", "b"],
                              "additionalProperties": false})"),
              HasSubstr("#/required: additionalProperties is false, and properties has no \"b\""));
  EXPECT_THAT(SchemaError(R"({"enum": 1})"), HasSubstr("#/enum: must be a list"));
  EXPECT_THAT(SchemaError(R"({"enum": ["ab"], "minLength": 1})"),
              HasSubstr("#/minLength: not supported beside enum or const"));
  for (const char* other : {"http://x/y", "file:///etc/passwd", "other.json#/a", "//host/a"}) {
    EXPECT_THAT(SchemaError(absl::StrCat(R"({"$ref": ")", other, R"("})")),
                HasSubstr("#/$ref: only references"));
  }
  EXPECT_THAT(SchemaError(R"({"$ref": "#/$defs/a"})"), HasSubstr("nothing stands at #/$defs/a"));
  EXPECT_THAT(SchemaError(R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})"),
              HasSubstr("schemas with different \"pattern\" cannot be combined"));
  EXPECT_THAT(SchemaError(R"({"minProperties": 2, "properties": {"a": {}}})"),
              HasSubstr("#/minProperties"));
  EXPECT_THAT(SchemaError(R"({"type": "integer", "minimum": 3, "maximum": 2})"),
              HasSubstr("no text can be finished"));
  EXPECT_THAT(SchemaError(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})"),
              HasSubstr("no text can be finished"));
}

}  // namespace
}  // namespace quire
