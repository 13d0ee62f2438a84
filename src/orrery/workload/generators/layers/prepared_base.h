// A quantised model as PEFT's prepare_model_for_kbit_training leaves it
// (framework_options.prepared_base).
//
// Parameters that are not quantised, i.e. tables, output layer, norms and biases, become fp32. So
// embeddings are, and with them the stream of residuals and all that norms, gates and rotation read
// and write: Shape::element_bytes is 4, while products run in Shape::dtype. A quantised layer casts
// its input to that type and its output back (bitsandbytes' Linear4bit), adapters and attention
// run in it under autocast, which casts queries, keys and values before attention and the output
// layer's weight once a micro-batch; that copy stays for the backward pass. LLM.int8 multiplies
// gradients in its input's type, fp32 (MatMul8bitLt).
//
// Source: peft 0.21, utils/other.py; bitsandbytes 0.50, nn/modules.py, autograd/_functions.py; one
// H200 (data/measured/h200/finetune.csv, finetune_blocks.csv).
#pragma once

#include <cstdint>
#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

// With activations in the type of products: of the logits and the loss.
Shape InProductType(const Shape& s);
// Kernels that cast rows × cols values from fp32 to the type of products, and back; none without
// prepared_base.
void ToProduct(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
               std::int64_t cols, graph::Pass pass);
void FromProduct(const Shape& s, BlockWriter* w, std::string_view name, std::int64_t rows,
                 std::int64_t cols, graph::Pass pass);
// The output layer's weight as autocast makes it; of no bytes without prepared_base.
graph::Buffer CastOutputWeight(const Shape& s, BlockWriter* w);

}  // namespace orrery::workload
