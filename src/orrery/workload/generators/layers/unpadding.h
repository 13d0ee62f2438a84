// flash-attn's unpad_input and pad_input around its kernel, as LLM Foundry calls them whether or
// not a sequence is padded (attn_impl flash; flash_attn/bert_padding.py). For each of queries, keys
// and values the tokens of the mask are counted, their indices and the longest sequence are read by
// the host, and the rows are gathered; the output's rows are written into a cleared tensor.
// Backward mirrors it without the counting.
#pragma once

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// Before and behind the attention kernel of this pass; nothing unless the plan unpads.
void BeforeAttention(const Shape& s, BlockWriter* w, graph::Pass pass);
void BehindAttention(const Shape& s, BlockWriter* w, graph::Pass pass);

}  // namespace orrery::workload
