// The ranges of the parameters.
#include "engine/values/sampling_fields.h"

#include <limits>

namespace quire {
namespace {

constexpr double kAnyCount = std::numeric_limits<int32_t>::max();

constexpr SamplingField kFields[] = {
    {"temperature", &SampleRow::temperature, 0, 100},
    {"top_k", &SampleRow::top_k, 0, kAnyCount},
    {"top_p", &SampleRow::top_p, 0, 1, /*above_low=*/true},
    {"min_p", &SampleRow::min_p, 0, 1},
    // Dividing by much less would make infinities of ordinary logits.
    {"repetition_penalty", &SampleRow::repetition_penalty, 0.01f, 10},
    {"presence_penalty", &SampleRow::presence_penalty, -2, 2},
    {"frequency_penalty", &SampleRow::frequency_penalty, -2, 2},
    {"top_n_sigma", &SampleRow::top_n_sigma, 0, 100},
    {"dynatemp_range", &SampleRow::dynatemp_range, 0, 100},
    {"dynatemp_exponent", &SampleRow::dynatemp_exponent, 0, 10},
    {"typical_p", &SampleRow::typical_p, 0, 1, /*above_low=*/true},
    {"xtc_probability", &SampleRow::xtc_probability, 0, 1},
    {"xtc_threshold", &SampleRow::xtc_threshold, 0, 0.5, /*above_low=*/true},
    {"dry_multiplier", &SampleRow::dry_multiplier, 0, 100},
    // The largest penalty, 100 * 4^49, is far from the largest float.
    {"dry_base", &SampleRow::dry_base, 1, 4},
    {"dry_allowed_length", &SampleRow::dry_allowed_length, 1, kDryMostTokens},
    {"dry_last_n", &SampleRow::dry_last_n, 0, kAnyCount},
};

}  // namespace

std::span<const SamplingField> SamplingFields() { return kFields; }

}  // namespace quire
