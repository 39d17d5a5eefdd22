// StepMessage: how the host tells the device what to run. Each step is one message in a ring that
// the device reads; BeginStep applies it to the device's row tables and expands it into the flat
// arrays of the step, EndStep hands back what was drawn.
#pragma once

#include <cstdint>

#include "kernels/sampling.h"

namespace quire {

// One row's share of a step: positions [start, start + count) run through the model. Their tokens
// are in the row's token table: written by this or an earlier step's patches, or drawn by an
// earlier step (possibly one whose result the host has not seen yet). With sample set, a token is
// drawn from the last position's logits and written at position start + count.
struct RowWork {
  int32_t row = 0;
  int32_t start = 0;
  int32_t count = 0;
  int32_t sample = 0;
};

// `bytes` bytes at offset `from` of the step's message go to device address `to`; all three are
// multiples of 4. Patches of one message do not overlap.
struct Patch {
  void* to = nullptr;
  uint32_t from = 0;
  uint32_t bytes = 0;
};

// The head of a step's message from the host: what changes in the device's tables, and which rows
// run. Offsets are bytes from the head, multiples of 16.
struct StepMessage {
  uint32_t bytes = 0;  // of the whole message
  int32_t num_patches = 0;
  int32_t num_rows = 0;     // S
  int32_t num_samples = 0;  // R: works with sample set
  uint32_t patches_at = 0;  // Patch[num_patches]
  uint32_t work_at = 0;     // RowWork[S]
  uint32_t jobs_at = 0;     // SampleJob[R], in the order of the works that sample; device pointers
  uint32_t reserved = 0;
};

// Where host and device exchange messages and results: `slots` of each in host memory that the
// device reads and writes (Backend::AllocateHost). Step number n uses slot n % slots, by a count
// kept on the device, so that a captured step finds its slot by itself.
struct StepRing {
  void* messages = nullptr;  // slot i at messages + i * message_stride bytes
  int64_t message_stride = 0;
  SampleResult* results = nullptr;  // slot i at results + i * result_stride elements
  int64_t result_stride = 0;
  int32_t slots = 0;
  uint64_t* step = nullptr;  // device memory: number of the current step; EndStep adds one
};

// First operation of a step: applies the message's patches, then expands its works into the flat
// arrays of the step. Shapes are the caller's (a captured step's are fixed) and must be the
// message's.
struct BeginStepParams {
  StepRing ring;
  int32_t num_tokens;          // T, the sum of the works' counts
  int32_t num_seqs;            // S
  int32_t num_samples;         // R
  const int32_t* token_table;  // [rows, token_stride] token ids by position
  int64_t token_stride;
  const int32_t* block_table;  // [rows, table_stride]
  int64_t table_stride;
  int32_t block_size;
  int32_t* token_ids;    // out [T]
  int32_t* positions;    // out [T]
  int64_t* slots;        // out [T] block * block_size + offset
  int32_t* query_begin;  // out [S + 1]
  int32_t* context_len;  // out [S]
  int32_t* table_row;    // out [S]
  int32_t* logit_rows;   // out [R] index into the T tokens
  SampleJob* jobs;       // out [R]
};

// Last operation of a step: hands the results to the host and counts the step.
struct EndStepParams {
  StepRing ring;
  const SampleResult* results;  // [R] device
  int32_t num_samples;          // R
};

}  // namespace quire
