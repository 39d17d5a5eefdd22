// StepMessage: the host's message to the device for one step.
//
// The host writes one message a step into a ring in memory that the device reads. BeginStep applies
// the message to the row tables in device memory and expands it into the flat arrays of the step.
// EndStep writes the drawn tokens back into the ring. So the host can send a step before it has the
// results of the step before.
#pragma once

#include <cstdint>

#include "kernels/sampling.h"

namespace quire {

// A row's work in a step: positions [start, start + count) run through the model. Their tokens are
// in the row's token table; patches of this step or an earlier one wrote them, or an earlier step
// drew them, possibly a step whose result the host has not read yet. The step draws a token from
// the logits of each of the last `sample` positions, 0 to count. A single draw is also written at
// position start + count. Several verify guesses: the tokens of the last sample - 1 positions. A
// draw is good if all draws before it equal the guesses at their places; the host keeps the good
// ones, and writes what the table does not have.
struct RowWork {
  int32_t row = 0;
  int32_t start = 0;
  int32_t count = 0;
  int32_t sample = 0;
};

// Copies `bytes` bytes from offset `from` of the step's message to device address `to`. All three
// are multiples of 4. The patches of one message do not overlap.
struct Patch {
  void* to = nullptr;
  uint32_t from = 0;
  uint32_t bytes = 0;
};

// The head of a step's message. Its arrays follow: patches change the row tables, works name the
// rows that run, jobs are the draws. Offsets are bytes from the head, multiples of 16.
struct StepMessage {
  uint32_t bytes = 0;  // of the whole message
  int32_t num_patches = 0;
  int32_t num_rows = 0;     // S
  int32_t num_samples = 0;  // R: the sum of `sample`
  uint32_t patches_at = 0;  // Patch[num_patches]
  uint32_t work_at = 0;     // RowWork[S]
  uint32_t jobs_at = 0;     // SampleJob[R] with device pointers, in the order of the works
  uint32_t reserved = 0;
};

// The ring of messages and results: `slots` of each, in host memory that the device reads and
// writes (DeviceMemory::AllocateHost). Step number n uses slot n % slots. The device counts the
// steps, so a captured step finds its slot without an argument that changes.
struct StepRing {
  void* messages = nullptr;  // slot i at messages + i * message_stride bytes
  int64_t message_stride = 0;
  SampleResult* results = nullptr;  // slot i at results + i * result_stride elements
  int64_t result_stride = 0;
  int32_t slots = 0;
  uint64_t* step = nullptr;  // device memory: the number of the current step; EndStep adds one
};

// The first operation of a step: applies the message's patches, then expands its works into the
// flat arrays of the step. The message must have the shapes given here, which are fixed in a
// captured step.
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

// The last operation of a step: writes the results into the ring and counts the step.
struct EndStepParams {
  StepRing ring;
  const SampleResult* results;  // [R] device
  int32_t num_samples;          // R
};

}  // namespace quire
