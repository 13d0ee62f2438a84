// Frozen weights of linear layers in 4 or 8 bits beside adapters (lora.h).
//
//   kind    an element   its scales                                source
//   nf4     4 bits       fp32 per 64; with double quantisation     Dettmers et al. 2023 (QLoRA);
//   fp4     4 bits       a byte per 64 and fp32 per 16,384         bitsandbytes, Params4bit
//   int8    8 bits       fp32 a row of the weight                  Dettmers et al. 2022 (LLM.int8);
//                                                                  bitsandbytes, Linear8bitLt
//
// Quantised are the linear layers of transformer layers, routers and experts among them; tables,
// output layer, norms, biases and convolutions stay in the model's type (bitsandbytes as
// Transformers applies it; torchtune's quantize_base).
//
// 4 bits: before each product, forward and for the gradient of its input, a kernel reads codes and
// scales and writes the weight in the model's type, which is freed behind the product; with double
// quantisation two small ones make the scales first (bitsandbytes' MatMul4Bit; its fused kernel is
// for few tokens, left out). torchao's NF4Tensor (the switch nf4_tensor) always has scales of a
// byte, kept with bf16 per 16,384; without torch.compile it unpacks by PyTorch's operators, through
// 64-bit indices: 33 bytes an element in place of 2.5.
// int8 forward (MatMul8bitLt): inputs in fp16 are searched for outliers, which the host reads
// twice, and quantised by rows; a product in int8 into 32 bits; those scaled to the model's type.
// The few columns of outliers, multiplied apart, are left out. Backward: the weight is cast and
// scaled, two kernels, then multiplied as with 4 bits. Inputs are attributes of the autograd node,
// not saved tensors: where a layer runs again they stay from its first run.
//
// Host: bitsandbytes' products cost three calls of Python beside their kernels' launches.
//
// Memory: codes and scales for ever, one dequantised weight at a time. Where units are gathered
// (FSDP's quant_storage, DeepSpeed) codes are sharded and gathered as they are; bitsandbytes'
// scales lie whole on every rank, NF4Tensor's are sharded and gathered beside the codes.
#pragma once

#include <cstdint>
#include <string_view>

#include "orrery/workload/generators/block_writer.h"
#include "orrery/workload/generators/shape.h"

namespace orrery::workload {

inline bool IsQuantized(const Shape& s) { return s.base_weights != BaseWeights::kModelType; }

// Quantised weights on this rank: elements, bytes.
struct PackedWeights {
  std::int64_t elements = 0, codes = 0, scales = 0;
};
PackedWeights operator+(const PackedWeights& a, const PackedWeights& b);
// Of a layer but for its experts; of those. Nothing where nothing is quantised.
PackedWeights PackedOf(const Shape& layer);
PackedWeights PackedExperts(const Shape& layer);

// The product of a linear layer with its weight, forward (kNT) or for its input's gradient (kNN).
void MultiplyByWeight(const Shape& s, BlockWriter* w, std::string_view name,
                      const graph::Gemm& gemm);

// What LLM.int8 keeps of a layer that runs again: inputs of its linear layers; 0: nothing.
std::int64_t Int8InputBytes(const Shape& s);

// Memory of what is frozen: elements in the model's type, and packed ones.
graph::Block FrozenMemory(const Shape& s, std::int64_t elements, std::int64_t codes,
                          std::int64_t scales, Names* names);

}  // namespace orrery::workload
