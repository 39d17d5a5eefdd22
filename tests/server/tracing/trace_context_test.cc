// The two headers of W3C Trace Context, by the kinds of cases of the standard's own test suite.
#include "server/tracing/trace_context.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace quire {
namespace {

// The standard's own example.
constexpr char kTrace[] = "0af7651916cd43dd8448eb211c80319c";
constexpr char kSpan[] = "b7ad6b7169203331";

std::string Header(const std::string& version, const std::string& trace, const std::string& span,
                   const std::string& rest) {
  return version + "-" + trace + "-" + span + "-" + rest;
}
std::string Good(const std::string& flags = "01") { return Header("00", kTrace, kSpan, flags); }

TEST(TraceparentTest, ReadsIdsAndTheSampledFlag) {
  const auto context = ParseTraceparent(Good());
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(HexOf(context->trace_id), kTrace);
  EXPECT_EQ(context->span_id, (SpanId{0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31}));
  EXPECT_TRUE(context->sampled);
  EXPECT_EQ(FormatTraceparent(*context), Good());
}

TEST(TraceparentTest, OnlyTheLowestFlagMeansSampled) {
  const struct {
    const char* flags;
    bool sampled;
  } kCases[] = {{"00", false}, {"01", true},  {"02", false},
                {"03", true},  {"fe", false}, {"ff", true}};
  for (const auto& c : kCases) {
    const auto context = ParseTraceparent(Good(c.flags));
    ASSERT_TRUE(context.has_value()) << c.flags;
    EXPECT_EQ(context->sampled, c.sampled) << c.flags;
    // Flags that version 00 does not define are not passed on.
    EXPECT_EQ(FormatTraceparent(*context), Good(c.sampled ? "01" : "00"));
  }
}

TEST(TraceparentTest, LaterVersionsAreReadAsFarAsKnown) {
  for (const std::string& good :
       {Header("01", kTrace, kSpan, "01"), Header("cc", kTrace, kSpan, "01"),
        Header("cc", kTrace, kSpan, "01-what-the-future-will-be-like"),
        Header("cc", kTrace, kSpan, "01-"), Header("fe", kTrace, kSpan, "01")}) {
    const auto context = ParseTraceparent(good);
    ASSERT_TRUE(context.has_value()) << good;
    EXPECT_TRUE(context->sampled) << good;
    EXPECT_EQ(FormatTraceparent(*context), Good()) << "a server speaks its own version";
  }
  EXPECT_FALSE(ParseTraceparent(Header("cc", kTrace, kSpan, "01.what-the-future")).has_value());
  EXPECT_FALSE(ParseTraceparent(Header("cc", kTrace, kSpan, "010")).has_value());
}

TEST(TraceparentTest, InvalidHeadersAreIgnored) {
  const std::string trace = kTrace, span = kSpan;
  const std::string zeros(32, '0');
  for (const std::string& bad : {std::string(),
                                 std::string("00"),
                                 std::string("-"),
                                 std::string(55, '-'),
                                 std::string(55, '0'),
                                 Header("ff", trace, span, "01"),
                                 Header("0", trace, span, "01"),
                                 Header("000", trace, span, "01"),
                                 Header(".0", trace, span, "01"),
                                 Header("0.", trace, span, "01"),
                                 Header("0F", trace, span, "01"),
                                 Header("00", zeros, span, "01"),
                                 Header("00", trace, zeros.substr(16), "01"),
                                 Header("00", "0AF7651916CD43DD8448EB211C80319C", span, "01"),
                                 Header("00", trace, "B7AD6B7169203331", "01"),
                                 Header("00", trace, span, "0A"),
                                 Header("00", "." + trace.substr(1), span, "01"),
                                 Header("00", trace.substr(1), span, "01"),
                                 Header("00", trace + "0", span, "01"),
                                 Header("00", trace, "." + span.substr(1), "01"),
                                 Header("00", trace, span.substr(1), "01"),
                                 Header("00", trace, span + "0", "01"),
                                 Header("00", trace, span, ""),
                                 Header("00", trace, span, "1"),
                                 Header("00", trace, span, ".0"),
                                 Header("00", trace, span, "0."),
                                 Header("00", trace, span, "001"),
                                 Header("00", trace, span, "01-"),
                                 Header("00", trace, span, "01-extra"),
                                 Good() + "," + Good(),
                                 "00_" + trace + "-" + span + "-01",
                                 "00-" + trace + "_" + span + "-01",
                                 "00-" + trace + "-" + span + "_01"}) {
    EXPECT_FALSE(ParseTraceparent(bad).has_value()) << "'" << bad << "'";
  }
  EXPECT_FALSE(ParseTraceparent(std::string(1 << 16, 'a')).has_value());
}

TEST(TraceparentTest, WhitespaceAroundAHeaderIsNotPartOfIt) {
  for (const std::string& good :
       {" " + Good(), "\t" + Good(), Good() + " ", Good() + "\t", "\t " + Good() + " \t"}) {
    EXPECT_TRUE(ParseTraceparent(good).has_value()) << "'" << good << "'";
  }
}

TEST(TracestateTest, PassesThroughWholeMembersUpTo512Bytes) {
  EXPECT_EQ(BoundTracestate(""), "");
  EXPECT_EQ(BoundTracestate(" foo=1,bar@tenant=2 "), "foo=1,bar@tenant=2");
  const std::string first = "a=" + std::string(254, '1');  // 256 bytes
  const std::string fits = "b=" + std::string(253, '2');   // and a comma: 512
  EXPECT_EQ(BoundTracestate(first + "," + fits), first + "," + fits);
  EXPECT_EQ(BoundTracestate(first + "," + fits + "2"), first);
  EXPECT_EQ(BoundTracestate(first + "," + fits + ",c=3"), first + "," + fits);
  EXPECT_EQ(BoundTracestate("a=" + std::string(600, '1')), "");
}

TEST(TracestateTest, AtMostThirtyTwoMembersOfPrintableCharacters) {
  std::string many, expected;
  for (int i = 0; i < 40; ++i) {
    const std::string member = (i == 0 ? "" : ",") + ("k" + std::to_string(i)) + "=1";
    many += member;
    if (i < 32) expected += member;
  }
  EXPECT_EQ(BoundTracestate(many), expected);
  EXPECT_EQ(BoundTracestate("a=1\n"), "");
  EXPECT_EQ(BoundTracestate("a=\xc3\xa4"), "");
}

TEST(TraceIdTest, NewIdsDifferAndAreNotZero) {
  std::set<TraceId> traces;
  std::set<SpanId> spans;
  for (int i = 0; i < 1000; ++i) {
    traces.insert(NewTraceId());
    spans.insert(NewSpanId());
  }
  EXPECT_EQ(traces.size(), 1000u);
  EXPECT_EQ(spans.size(), 1000u);
  EXPECT_EQ(traces.count(TraceId{}), 0u);
  EXPECT_EQ(spans.count(SpanId{}), 0u);
}

TEST(TraceIdTest, ARatioTakesThatShareAndTheSameTracesEverywhere) {
  TraceId low{}, high{};
  high.fill(0xff);
  low[0] = 0xff;  // the first half does not decide
  EXPECT_FALSE(WithinRatio(low, 0));
  EXPECT_TRUE(WithinRatio(low, 1e-9));
  EXPECT_TRUE(WithinRatio(high, 1));
  EXPECT_FALSE(WithinRatio(high, 0.999));
  TraceId middle{};
  middle[8] = 0x80;  // half of 2^64
  EXPECT_FALSE(WithinRatio(middle, 0.5));
  EXPECT_TRUE(WithinRatio(middle, 0.500001));
}

}  // namespace
}  // namespace quire
